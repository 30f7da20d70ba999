//! How one call of a program ended.

use serde_json::Value;
use std::process::Output;

/// Exit code and output.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: Vec<u8>,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "exit {}\n{}\n{}", self.code, self.text(), self.err)
    }
}

impl Ran {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// All objects but progress.
    pub fn objects(&self) -> Vec<Value> {
        let text = self.text();
        let value = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        let values = text.lines().map(value);
        values
            .filter(|value: &Value| value["type"] != "status")
            .collect()
    }

    pub fn of_type(&self, name: &str) -> Vec<Value> {
        let all = self.objects().into_iter();
        all.filter(|value| value["type"] == name).collect()
    }

    /// The last line, which must be the summary.
    pub fn summary(&self) -> Value {
        let last = self.objects().pop().unwrap_or_else(|| panic!("{self}"));
        assert_eq!(last["type"], "summary", "{self}");
        last
    }
}
