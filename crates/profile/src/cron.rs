//! The text of a crontab for a profile, where systemd does not run.

use crate::units::{MARK, SchedulePlan};

/// What a file in `/etc/cron.d` is called: no dots, or cron passes it over.
pub fn file_name(profile: &str) -> String {
    format!("bale-run-{profile}")
}

/// The text; `user`: whose name stands in a line, in `/etc/cron.d` (a crontab of a user has none).
///
/// Cron starts nothing that it missed while the machine was off. A line makes up for it at the next
/// start of the machine: the run sees from its record what is due.
pub fn crontab(plan: &SchedulePlan, user: Option<&str>) -> String {
    let user = user.map_or(String::new(), |user| format!("{user} "));
    let command = command_line(plan);
    let mut lines = vec![
        MARK.to_owned(),
        format!("# Backup by the profile {}.", plan.profile),
    ];
    let times = plan.times.iter().map(|times| times.for_cron());
    lines.extend(times.map(|times| format!("{times} {user}{command}")));
    lines.push("# What was missed while the machine was off.".to_owned());
    lines.push(format!("@reboot {user}{command}"));
    lines.join("\n") + "\n"
}

/// For cron, to which a per cent sign ends the command, and then for its shell.
fn command_line(plan: &SchedulePlan) -> String {
    let program = plan.program.as_os_str().as_encoded_bytes();
    let words = [program]
        .into_iter()
        .chain(plan.words.iter().map(Vec::as_slice));
    let quoted: Vec<String> = words
        .map(|word| quoted(&String::from_utf8_lossy(word)))
        .collect();
    quoted.join(" ").replace('%', "\\%")
}

/// One word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-=:,@+%".contains(letter);
    match word.chars().all(is_plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The crontab of a user with this text in the place of what stood in it for the profile; without
/// one, without that.
pub fn with_block(crontab: &str, profile: &str, text: Option<&str>) -> String {
    let (begin, end) = (
        format!("# bale run {profile}: begin"),
        format!("# bale run {profile}: end"),
    );
    let mut kept = String::new();
    let mut is_ours = false;
    for line in crontab.lines() {
        match line.trim_end() {
            line if line == begin => is_ours = true,
            line if line == end && is_ours => is_ours = false,
            _ if is_ours => {}
            _ => kept.extend([line, "\n"]),
        }
    }
    if let Some(text) = text {
        kept.push_str(&format!("{begin}\n{text}{end}\n"));
    }
    kept
}

/// A line ends a command of cron, and nothing brings it back: such words cannot be scheduled so.
pub fn is_writable(plan: &SchedulePlan) -> bool {
    let program = plan.program.as_os_str().as_encoded_bytes();
    let mut words = [program]
        .into_iter()
        .chain(plan.words.iter().map(Vec::as_slice));
    words.all(|word| std::str::from_utf8(word).is_ok_and(|word| !word.contains(char::is_control)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Times;
    use std::time::Duration;

    fn plan(words: &[&str]) -> SchedulePlan {
        SchedulePlan {
            profile: "home".to_owned(),
            program: "/opt/a b/bale".into(),
            words: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
            times: ["daily 02:30", "sunday 04:00"]
                .map(|text| Times::parse(text).unwrap())
                .to_vec(),
            random_delay: Duration::ZERO,
            is_of_system: true,
            is_remote: false,
            starts_programs: false,
            writes: Vec::new(),
            reads: Vec::new(),
            reads_anything: false,
            has_own_state: true,
        }
    }

    #[test]
    fn words_survive_cron_and_its_shell() {
        let plan = plan(&["run", "--profiles", "/a b/100%/$x's.toml", "home"]);
        assert!(is_writable(&plan));
        let text = crontab(&plan, Some("root"));
        let line =
            "30 2 * * * root '/opt/a b/bale' run --profiles '/a b/100\\%/$x'\\''s.toml' home";
        assert_eq!(text.lines().nth(2), Some(line));
        assert!(text.contains("\n0 4 * * sun root "), "{text}");
        assert!(text.contains("\n@reboot root "), "{text}");
        assert!(!crontab(&plan, None).contains("root"));
    }

    #[test]
    fn a_crontab_of_a_user_keeps_what_is_his() {
        let his = "MAILTO=me\n0 1 * * * his\n# bale run other: begin\nx\n# bale run other: end\n";
        let with = with_block(his, "home", Some("0 2 * * * ours\n"));
        assert!(
            with.starts_with(his) && with.contains("0 2 * * * ours"),
            "{with}"
        );
        let again = with_block(&with, "home", Some("0 3 * * * ours\n"));
        assert!(again.contains("0 3") && !again.contains("0 2 *"), "{again}");
        assert_eq!(with_block(&again, "home", None), his);
        assert_eq!(with_block("", "home", None), "");
    }

    #[test]
    fn what_no_line_of_cron_can_say_is_not_written() {
        assert!(!is_writable(&plan(&["run", "a\nb"])));
    }
}
