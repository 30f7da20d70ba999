//! Environment variables with secrets, removed from every program we start.

use std::process::Command;

/// Variables that hold a secret, or say where one is.
pub const SECRET_VARIABLES: [&str; 4] = [
    "BALE_PASSWORD",
    "BALE_PASSWORD_FILE",
    "BALE_PASSWORD_COMMAND",
    "BALE_KEY_FILE",
];

/// Starts the command without them.
pub fn withhold_secrets(command: &mut Command) -> &mut Command {
    for name in SECRET_VARIABLES {
        command.env_remove(name);
    }
    command
}
