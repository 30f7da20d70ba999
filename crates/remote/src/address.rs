//! Hosts, ports and names of directories as the URLs of every scheme write them.
//!
//! What is read here goes into requests, commands and messages, so it holds nothing that would mean
//! something else there.

use std::net::Ipv6Addr;

/// What of an address is wrong.
pub(crate) enum AddressFault {
    Host,
    Port,
}

/// `HOST` or `HOST:PORT`; an IPv6 address stands in brackets, and is given without them.
pub(crate) fn read_address(text: &str) -> Result<(&str, Option<u16>), AddressFault> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']').ok_or(AddressFault::Host)?;
            let _: Ipv6Addr = address.parse().map_err(|_| AddressFault::Host)?;
            match after.strip_prefix(':') {
                None if !after.is_empty() => return Err(AddressFault::Host),
                port => (address, port),
            }
        }
        None => match text.split_once(':') {
            Some((host, port)) => (checked_name(host)?, Some(port)),
            None => (checked_name(text)?, None),
        },
    };
    let number = |digits: &str| {
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let port = digits.parse().ok().filter(|port| *port != 0 && is_number);
        port.ok_or(AddressFault::Port)
    };
    Ok((host, port.map(number).transpose()?))
}

/// Two dots in a row are no name of a host, and alone a way up.
fn checked_name(host: &str) -> Result<&str, AddressFault> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = !host.is_empty() && host.bytes().all(is_plain);
    match is_name && !host.starts_with('.') && !host.contains("..") {
        true => Ok(host),
        false => Err(AddressFault::Host),
    }
}

/// Is it the name of one file or directory, and not its directory's own?
pub(crate) fn is_file_name(name: &str) -> bool {
    let is_odd = |letter: char| letter == '/' || letter.is_control();
    !matches!(name, "" | "." | "..") && !name.contains(is_odd)
}
