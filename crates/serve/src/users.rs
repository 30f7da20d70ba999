//! Who may come in: a file of lines `USER:HASH`, the hash one of Argon2id in PHC form, as
//! `bale serve --hash-password` prints them.
//!
//! Checking a password is made slow on purpose; one that was right is remembered by a keyed hash,
//! as long as the process lives. An unknown user costs as much time as a wrong password.

use crate::limits::{LOGIN_CHECK_KIB_MAX, LOGINS_CACHED_MAX};
use crate::target::is_plain;
use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};

/// Bytes of a password file at most.
pub const USERS_FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a password file is none.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    #[error("line {0} is not USER:HASH, with a user of letters, digits, - and _")]
    Line(usize),
    #[error(
        "line {0} has no hash of Argon2id that takes at most {LOGIN_CHECK_KIB_MAX} KiB: have it \
         made by bale serve --hash-password USER"
    )]
    Hash(usize),
    #[error("line {0} names a user again")]
    Again(usize),
    #[error("there is no user in it")]
    Nobody,
    #[error("no randomness from the system: {0}")]
    Random(std::io::Error),
    #[error("the password cannot be hashed: {0}")]
    Unhashable(String),
}

/// Users and the hashes of their passwords.
pub struct Users {
    hashes: BTreeMap<String, String>,
    /// What an unknown user's password is compared with.
    decoy: String,
    key: [u8; 32],
    right: Mutex<HashSet<[u8; 32]>>,
}

impl Users {
    /// Reads the text of a password file. Empty lines and those that begin with `#` say nothing.
    pub fn parse(text: &str) -> Result<Users, UsersError> {
        let mut hashes = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (user, hash) = line.split_once(':').ok_or(UsersError::Line(number))?;
            if !is_plain(user) {
                return Err(UsersError::Line(number));
            }
            if !is_argon2id(hash) {
                return Err(UsersError::Hash(number));
            }
            if hashes.insert(user.to_owned(), hash.to_owned()).is_some() {
                return Err(UsersError::Again(number));
            }
        }
        if hashes.is_empty() {
            return Err(UsersError::Nobody);
        }
        let random = bale_pipeline::random::OsRandom;
        Ok(Users {
            hashes,
            decoy: hash("")?,
            key: bale_pipeline::random::draw(&random).map_err(UsersError::Random)?,
            right: Mutex::default(),
        })
    }

    /// The user of an `Authorization` header, if this login was right before.
    pub fn remembered(&self, login: &Login) -> bool {
        let right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        right.contains(&self.digest(login))
    }

    /// Is this the user's password? Takes tens of milliseconds and megabytes.
    pub fn check(&self, login: &Login) -> bool {
        let known = self.hashes.get(&login.user);
        let hash = known.unwrap_or(&self.decoy);
        let password = login.password.as_bytes();
        let is_right = PasswordHash::new(hash)
            .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok());
        if !is_right || known.is_none() {
            return false;
        }
        let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        if right.len() >= LOGINS_CACHED_MAX {
            right.clear();
        }
        right.insert(self.digest(login));
        true
    }

    fn digest(&self, login: &Login) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(login.user.as_bytes());
        // No user has a zero byte.
        hasher.update(&[0]);
        hasher.update(login.password.as_bytes());
        *hasher.finalize().as_bytes()
    }
}

/// What a client says of himself.
#[derive(Clone)]
pub struct Login {
    pub user: String,
    password: String,
}

impl Login {
    /// Reads `Basic BASE64`.
    pub fn parse(header: &str) -> Option<Login> {
        let (scheme, text) = header.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let text = String::from_utf8(BASE64_STANDARD.decode(text.trim()).ok()?).ok()?;
        let (user, password) = text.split_once(':')?;
        is_plain(user).then(|| Login {
            user: user.to_owned(),
            password: password.to_owned(),
        })
    }
}

/// The line of a password file.
pub fn users_line(user: &str, password: &str) -> Result<String, UsersError> {
    if !is_plain(user) {
        return Err(UsersError::Line(1));
    }
    Ok(format!("{user}:{}", hash(password)?))
}

fn hash(password: &str) -> Result<String, UsersError> {
    let hash = Argon2::default().hash_password(password.as_bytes());
    let hash: PasswordHash = hash.map_err(|error| UsersError::Unhashable(error.to_string()))?;
    Ok(hash.to_string())
}

fn is_argon2id(text: &str) -> bool {
    let Ok(hash) = PasswordHash::new(text) else {
        return false;
    };
    let params = argon2::Params::try_from(&hash);
    hash.algorithm.as_str() == "argon2id"
        && hash.hash.is_some()
        && hash.salt.is_some()
        && params.is_ok_and(|params| params.m_cost() <= LOGIN_CHECK_KIB_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(user: &str, password: &str) -> Login {
        let text = BASE64_STANDARD.encode(format!("{user}:{password}"));
        Login::parse(&format!("Basic {text}")).unwrap()
    }

    #[test]
    fn a_right_password_is_remembered_and_a_wrong_one_is_not() {
        let line = users_line("me", "pass:word").unwrap();
        let users = Users::parse(&format!("# who\n\n{line}\n")).unwrap();
        let right = login("me", "pass:word");
        assert!(!users.remembered(&right));
        assert!(users.check(&right) && users.remembered(&right));
        for wrong in [
            login("me", "pass"),
            login("you", "pass:word"),
            login("you", ""),
        ] {
            assert!(!users.check(&wrong) && !users.remembered(&wrong));
        }
    }

    #[test]
    fn what_is_no_password_file_is_refused_by_its_line() {
        let line = users_line("me", "x").unwrap();
        let expensive = line.replace("m=19456", "m=999999");
        assert_ne!(line, expensive);
        for (text, expected) in [
            (String::new(), "no user"),
            ("me".to_owned(), "line 1"),
            ("../me:x".to_owned(), "line 1"),
            ("\nme:$2y$05$abc".to_owned(), "line 2"),
            (format!("{line}\n{line}"), "line 2 names"),
            (expensive, "line 1 has no hash"),
            (
                "me:$argon2id$v=19$m=19456,t=2,p=1".to_owned(),
                "line 1 has no hash",
            ),
        ] {
            let error = Users::parse(&text).err().expect(&text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(users_line("a/b", "x").is_err());
    }

    #[test]
    fn a_header_that_names_nobody_is_no_login() {
        for header in [
            "",
            "Basic",
            "Basic !",
            "Bearer bWU6eA==",
            "Basic bWU=",
            "Basic Li46eA==",
        ] {
            assert!(Login::parse(header).is_none(), "{header}");
        }
    }
}
