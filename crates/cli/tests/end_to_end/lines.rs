//! What is between a store and its server goes wrong, and servers that die: the same for every
//! protocol, in front of servers that others have written.

mod cut;
mod dead_server;
mod served;
mod trial;
