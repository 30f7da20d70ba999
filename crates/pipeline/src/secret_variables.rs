//! Environment variables with secrets, removed from every program we start.

use std::process::Command;

/// Variables that hold a secret, or say where one is.
const SECRET_VARIABLES: [&str; 12] = [
    "BALE_PASSWORD",
    "BALE_PASSWORD_FILE",
    "BALE_PASSWORD_COMMAND",
    "BALE_KEY_FILE",
    "BALE_LOGIN_FILE",
    "BALE_COLD_LOGIN_FILE",
    "BALE_FROM_PASSWORD",
    "BALE_FROM_PASSWORD_FILE",
    "BALE_FROM_PASSWORD_COMMAND",
    "BALE_FROM_KEY_FILE",
    "BALE_FROM_LOGIN_FILE",
    "BALE_TO_LOGIN_FILE",
];

/// Starts the command without them.
pub fn withhold_secrets(command: &mut Command) -> &mut Command {
    for name in SECRET_VARIABLES {
        command.env_remove(name);
    }
    command
}
