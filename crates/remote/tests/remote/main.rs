//! Stores on a wire: servers that lie, and real servers as other people run them.

mod dav_hostile;
mod file_servers;
mod ftp_fake;
mod ftp_hostile;
mod rclone;
mod rest_hostile;
mod script;
mod sftp_hostile;
mod sftp_server;
