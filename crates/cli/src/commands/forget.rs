//! `bale forget`

use super::{prune, select, sudden, unmatched};
use crate::args::{Forget, Global, Pick};
use crate::exit::{self, Usage};
use crate::place::Use;
use crate::{output, place, run_record};
use anyhow::{Context, Result, bail};
use bale_engine::forget::{
    self as engine, Decision, ForgetPlan, FoundObject, GroupBy, Keep, Policy, SnapshotGroup, Within,
};
use bale_engine::prune::{refuse_while_missed, refuse_while_sudden, refuse_while_unreadable};
use bale_engine::status::{SuddenChange, unconfirmed};
use bale_format::ObjectId;
use bale_pipeline::error::without_name;
use bale_pipeline::monitor::Problem;
use bale_repository::error::Error;
use bale_repository::repository::{Named, Repository};
use bale_repository::snapshots::remembered::{self, Missed, missed};
use bale_repository::store::{Area, ObjectName};
use jiff::Span;
use jiff::tz::TimeZone;
use serde_json::json;
use std::sync::Arc;

/// Prints the plan, removes exactly what it says, and prunes if asked to.
pub fn run(global: &Global, options: &Forget) -> Result<i32> {
    let policy = policy(options)?;
    let by = GroupBy::parse(&options.group_by).map_err(Usage)?;
    if options.ids.is_empty() && policy.is_empty() {
        return Err(Usage(what_is_missing(options).to_owned()).into());
    }
    let prune_options = prune::parsed(&options.prune_options)?;
    let repository = place::open_for(global, Use::unless_dry_run(options.dry_run))?;
    let despite = &options.prune_options.despite_sudden_change;
    let meant = sudden::confirm(&repository, despite, options.dry_run)?;
    let mut code = exit::COMPLETE;
    let removed = if options.ids.is_empty() {
        let (removed, is_whole) = by_policy(global, options, &repository, (&policy, by, &meant))?;
        if !is_whole {
            code = exit::INCOMPLETE;
        }
        removed
    } else {
        let removed = by_id(global, options, &repository)?;
        sudden::refuse_to_leave_later(&repository, &removed)?;
        removed
    };
    if options.prune && !options.dry_run {
        let nothing = "nothing is removed, because a prune would follow";
        refuse_while_missed(&repository).context(nothing)?;
        let goes = |name: &ObjectName| removed.iter().any(|found| found.name == *name);
        refuse_while_unreadable(&repository, goes).context(nothing)?;
        refuse_while_sudden(&repository, goes).context(nothing)?;
    }
    apply(global, options, &repository, &removed)?;
    if options.prune {
        let pruned = prune::prune(
            global,
            &repository,
            prune_options,
            options.dry_run,
            "prune_summary",
        )?;
        return Ok(code.max(pruned));
    }
    // Other objects hold no space, or gave it back.
    let uses = |found: &&FoundObject| matches!(found.name.area, Area::Snapshots | Area::Runs);
    let users = removed.iter().filter(uses).count() as u64;
    if users > 0 && !options.dry_run && !global.quiet && !global.json {
        report!(
            "What only {} used comes back with: bale prune",
            crate::sizes::one_or_more(users, "it", "they")
        );
    }
    Ok(code)
}

fn by_id(
    global: &Global,
    options: &Forget,
    repository: &Arc<Repository>,
) -> Result<Vec<FoundObject>> {
    let mut removed: Vec<FoundObject> = Vec::new();
    // Read once: what is wrong with a snapshot is reported as it is read.
    let by_order = |text: &String| text.starts_with("latest");
    let listed = match options.ids.iter().any(by_order) {
        true => Some(select::Listed::of(repository)?),
        false => None,
    };
    for text in &options.ids {
        let found = if let Some(listed) = listed.as_ref().filter(|_| by_order(text)) {
            engine::find(repository, &in_order(options, listed, text)?.to_string())?
        } else {
            match (engine::find(repository, text), missed(repository, text)?) {
                (Err(Error::NoSnapshot(_)), Some(id)) => {
                    if !options.dry_run {
                        remembered::let_go(repository, id);
                    }
                    let text =
                        "not in the repository any more: it is no longer reported as missing";
                    say(global, "gone  ", &id.short(), text);
                    continue;
                }
                (found, _) => found?,
            }
        };
        if removed.iter().any(|other| other.name == found.name) {
            continue;
        }
        if found.is_pinned {
            let short = found.name.id().map(|id| id.short()).unwrap_or_default();
            bail!(
                "{short} is pinned, and nothing is removed: bale unpin {short} before, if it may go"
            );
        }
        if let Some(error) = &found.damage {
            let name = found.name.to_string();
            let text = error.to_string();
            // An error names the object, and its cause may do so again.
            let text = without_name(&name, without_name(&name, &text));
            report!("bale: {name}: {}", output::escape(text.as_bytes()));
        }
        let short = found.name.id().map(|id| id.short()).unwrap_or_default();
        say(global, "remove", &short, found.cost());
        removed.push(found);
    }
    Ok(removed)
}

/// The snapshot at a place in the order of times: none may be out of sight.
fn in_order(options: &Forget, listed: &select::Listed, text: &str) -> Result<ObjectId> {
    let pick = Pick {
        select: options.select.clone(),
        ignore_damaged: false,
    };
    if !listed.damaged.is_empty() {
        bail!("{text} may mean another snapshot while one cannot be read: name it by its id");
    }
    let found = listed.find(text, &pick)?;
    let would = "the snapshot of another machine would be removed";
    listed.need_own(text, &found, &pick.select, would)?;
    let would = "an older one would be removed in its place";
    listed.need_newer(text, &found, &pick.select, would)?;
    Ok(found.0)
}

/// What goes, and whether all snapshots could be read.
fn by_policy(
    global: &Global,
    options: &Forget,
    repository: &Arc<Repository>,
    (policy, by, meant): (&Policy, GroupBy, &[ObjectId]),
) -> Result<(Vec<FoundObject>, bool)> {
    let filter = select::filter(&options.select);
    let (snapshots, damaged) =
        remembered::list(repository, &|missed| report_missed(global, &missed))?;
    for (name, error) in &damaged {
        let id = name.id().map(|id| id.to_string()).unwrap_or_default();
        output::problem(
            &Problem {
                path: name.path().into_bytes(),
                action: "read",
                text: format!("{error}: it stays (bale forget {id} removes it)"),
            },
            global.json,
        );
    }
    unmatched::report(global, &options.select, &snapshots);
    let mut unmeant = unconfirmed(repository, &snapshots);
    unmeant.retain(|change| !meant.contains(&change.snapshot));
    let passing: Vec<Named> = snapshots
        .into_iter()
        .filter(|(_, snapshot)| filter.passes(snapshot))
        .collect();
    let now = repository.clock().time();
    let plan = engine::plan(&passing, policy, by, &TimeZone::system(), now);
    print_plan(global, &plan);
    report_future_dates(global, &plan);
    refuse_to_empty(&plan)?;
    keep_what_was_before(global, options, &unmeant, &plan)?;
    let found = |decision: &Decision| FoundObject {
        name: ObjectName::snapshot(decision.id),
        damage: None,
        is_pinned: decision.is_pinned,
    };
    Ok((plan.removed().map(found).collect(), damaged.is_empty()))
}

/// One that should be the newest does not count: another is kept, and named by "latest", in its
/// place.
fn report_missed(global: &Global, missed: &Missed) {
    match global.json {
        true => output::object(&json!({"type": "note", "message": missed.text})),
        false => report!("bale: {}", output::escape(missed.text.as_bytes())),
    }
}

/// A clock was wrong, ours or another.
fn report_future_dates(global: &Global, plan: &ForgetPlan) {
    let future = plan.kept().filter(|decision| decision.is_in_future);
    let count = future.count() as u64;
    if count == 0 || global.quiet {
        return;
    }
    let text = format!(
        "{} dated in the future: kept, and counted by no rule. Is the clock of this machine right? \
         If it is, remove them by id",
        crate::sizes::counted(count, "snapshot")
    );
    if global.json {
        return output::object(&json!({"type": "note", "message": text}));
    }
    report!("bale: {text}");
}

/// A slip in a rule (a tag that nothing has) must not remove all there is of a source. What is
/// dated in the future, or pinned, stays in any case, and is no reason that the others may go.
fn refuse_to_empty(plan: &ForgetPlan) -> Result<()> {
    for group in &plan.groups {
        let decisions = group.decisions.iter();
        let counted: Vec<_> = decisions
            .filter(|decision| !decision.is_in_future && !is_kept_by_pin_alone(decision))
            .collect();
        let Some(first) = counted.first() else {
            continue;
        };
        if counted.iter().all(|decision| decision.reasons.is_empty()) {
            let text = format!(
                "these rules would remove all there is ({}) of {} on {}: name them by id if that \
                 is meant",
                crate::sizes::counted(counted.len() as u64, "snapshot"),
                paths_text(first),
                output::escape(first.host.as_bytes()),
            );
            return Err(anyhow::anyhow!(text));
        }
    }
    Ok(())
}

/// Rules know nothing of what a source went through: what was there before a change that looks as
/// if somebody had encrypted it stays until somebody says that it was meant.
fn keep_what_was_before(
    global: &Global,
    options: &Forget,
    unmeant: &[SuddenChange],
    plan: &ForgetPlan,
) -> Result<()> {
    for change in unmeant {
        let seconds = change.time.seconds;
        let is_before = |decision: &&Decision| {
            let mut paths = decision.paths.clone();
            paths.sort();
            let is_of_source =
                (&decision.host, &paths) == (&change.source.host, &change.source.paths);
            is_of_source && decision.time.as_second() <= seconds
        };
        let count = plan.removed().filter(is_before).count() as u64;
        if count == 0 {
            continue;
        }
        let text = format!(
            "{}. These rules would remove {} from before it. {}",
            change.text(),
            crate::sizes::counted(count, "snapshot"),
            change.advice("forget")
        );
        match options.dry_run {
            true => sudden::note(global, &text),
            false => return Err(anyhow::anyhow!("forget refuses: {text}")),
        }
    }
    Ok(())
}

fn is_kept_by_pin_alone(decision: &Decision) -> bool {
    decision.is_pinned && decision.reasons.len() <= 1
}

fn print_plan(global: &Global, plan: &ForgetPlan) {
    for group in &plan.groups {
        if !global.json && !global.quiet {
            output::line(&heading(plan, group));
        }
        for decision in &group.decisions {
            print_decision(global, group, decision);
        }
    }
}

/// What the snapshots of a group have in common.
pub(super) fn heading(plan: &ForgetPlan, group: &SnapshotGroup) -> String {
    let paths = group.paths.iter().flatten();
    let paths: Vec<String> = paths.map(|path| output::escape(path)).collect();
    let host = group.host.as_deref().unwrap_or("all hosts");
    let more = distinguishing_filesystems(plan, group);
    let host = output::escape(host.as_bytes());
    format!("{host} {}{more}", paths.join(" "))
}

/// What distinguishes a group from others of the same host and paths.
fn distinguishing_filesystems(plan: &ForgetPlan, group: &SnapshotGroup) -> String {
    let is_alike =
        |other: &&SnapshotGroup| (&other.host, &other.paths) == (&group.host, &group.paths);
    if plan.groups.iter().filter(is_alike).count() < 2 {
        return String::new();
    }
    let mut text = String::new();
    if let Some(names) = &group.filesystems {
        let names = match names.is_empty() {
            true => "an unknown file system".to_owned(),
            false => names.join(" "),
        };
        text.push_str(&format!("  [on {}]", output::escape(names.as_bytes())));
    }
    if let Some(tags) = &group.tags {
        let tags = tags.join(",");
        text.push_str(&format!("  ({})", output::escape(tags.as_bytes())));
    }
    text
}

fn print_decision(global: &Global, group: &SnapshotGroup, decision: &Decision) {
    let keep = !decision.reasons.is_empty();
    if global.json {
        output::object(&json!({
            "type": "decision", "id": decision.id.to_string(), "time": decision.time.to_string(),
            "host": decision.host,
            "filesystems": group.filesystems, "keep": keep, "reasons": decision.reasons,
            "pinned": decision.is_pinned,
        }));
    } else if !global.quiet {
        let time = decision
            .time
            .to_zoned(TimeZone::system())
            .strftime("%Y-%m-%d %H:%M:%S");
        let word = if keep { "keep  " } else { "remove" };
        output::line(&format!(
            "  {word} {}  {time}  {}",
            decision.id.short(),
            output::escape(decision.reasons.join(", ").as_bytes())
        ));
    }
}

fn apply(
    global: &Global,
    options: &Forget,
    repository: &Arc<Repository>,
    removed: &[FoundObject],
) -> Result<()> {
    for found in removed.iter().filter(|_| !options.dry_run) {
        engine::remove(repository, found)?;
    }
    let summary = json!({"type": "summary", "removed": removed.len(), "dry_run": options.dry_run});
    run_record::keep(&summary);
    if global.json {
        output::object(&summary);
    } else if !global.quiet {
        let word = if options.dry_run {
            "would remove"
        } else {
            "removed"
        };
        report!(
            "{word} {}",
            crate::sizes::counted(removed.len() as u64, what(removed))
        );
    }
    Ok(())
}

fn what(removed: &[FoundObject]) -> &'static str {
    let is_snapshot = |found: &FoundObject| found.name.area == Area::Snapshots;
    match removed.iter().all(is_snapshot) {
        true => "snapshot",
        false => "object",
    }
}

/// A rule of 0 is none, as in restic: a script that computes its numbers does not delete all.
fn what_is_missing(options: &Forget) -> &'static str {
    let rules = [
        &options.keep_last,
        &options.keep_hourly,
        &options.keep_daily,
        &options.keep_weekly,
        &options.keep_monthly,
        &options.keep_yearly,
    ];
    match rules.iter().any(|rule| rule.is_some()) {
        true => {
            "nothing says what to keep: a --keep rule with 0 is no rule. Give one a number of at \
             least 1 (\"unlimited\" keeps all), or name the snapshots to forget by their ids"
        }
        false => "nothing says what to forget: give snapshot ids or at least one --keep rule",
    }
}

fn policy(options: &Forget) -> Result<Policy> {
    Ok(Policy {
        last: count("--keep-last", &options.keep_last)?,
        hourly: count("--keep-hourly", &options.keep_hourly)?,
        daily: count("--keep-daily", &options.keep_daily)?,
        weekly: count("--keep-weekly", &options.keep_weekly)?,
        monthly: count("--keep-monthly", &options.keep_monthly)?,
        yearly: count("--keep-yearly", &options.keep_yearly)?,
        within: options.keep_within.as_deref().map(within).transpose()?,
        within_each: Within {
            hourly: (options.keep_within_hourly.as_deref())
                .map(within)
                .transpose()?,
            daily: (options.keep_within_daily.as_deref())
                .map(within)
                .transpose()?,
            weekly: (options.keep_within_weekly.as_deref())
                .map(within)
                .transpose()?,
            monthly: (options.keep_within_monthly.as_deref())
                .map(within)
                .transpose()?,
            yearly: (options.keep_within_yearly.as_deref())
                .map(within)
                .transpose()?,
        },
        tags: options
            .keep_tag
            .iter()
            .map(|tags| select::split_tags(tags))
            .filter(|tags| !tags.is_empty())
            .collect(),
    })
}

fn count(option: &str, text: &Option<String>) -> Result<u32> {
    match text.as_deref() {
        None => Ok(0),
        Some("unlimited") => Ok(Keep::UNLIMITED),
        Some(text) => text.parse().map_err(|_| {
            Usage(format!(
                "{option}: {text:?} is not a number, nor \"unlimited\""
            ))
            .into()
        }),
    }
}

/// `2y5m7d3h`: years, months, days, hours.
fn within(text: &str) -> Result<Span> {
    let wrong = || {
        Usage(format!(
            "{text:?} is not a duration: write for example 2y5m7d3h"
        ))
    };
    let mut span = Span::new();
    let mut digits = String::new();
    for letter in text.chars() {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        let number: i64 = digits.parse().map_err(|_| wrong())?;
        digits.clear();
        let longer = match letter {
            'y' => span.try_years(number),
            'm' => span.try_months(number),
            'd' => span.try_days(number),
            'h' => span.try_hours(number),
            _ => return Err(wrong().into()),
        };
        span = longer.map_err(|_| Usage(format!("{text:?} is too long a duration")))?;
    }
    if digits.is_empty() && !text.is_empty() {
        Ok(span)
    } else {
        Err(wrong().into())
    }
}

fn paths_text(decision: &Decision) -> String {
    decision
        .paths
        .iter()
        .map(|path| output::escape(path))
        .collect::<Vec<_>>()
        .join(" ")
}

fn say(global: &Global, word: &str, id: &str, reason: &str) {
    if !global.json && !global.quiet {
        output::line(&format!("  {word} {id}  {reason}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A snapshot of a wrong clock stays by itself; all others would go for a slip in a rule.
    #[test]
    fn a_snapshot_of_the_future_lets_no_rule_remove_all_others() {
        let decision = |is_in_future: bool, reasons: &[&str]| Decision {
            id: bale_format::ObjectId([1; 32]),
            time: jiff::Timestamp::UNIX_EPOCH,
            host: "h".to_owned(),
            paths: Vec::new(),
            tags: Vec::new(),
            reasons: reasons.iter().map(|text| (*text).to_owned()).collect(),
            is_in_future,
            is_pinned: false,
            replaces: 0,
            run: String::new(),
        };
        let plan = |decisions| ForgetPlan {
            groups: vec![engine::SnapshotGroup {
                host: None,
                paths: None,
                filesystems: None,
                tags: None,
                decisions,
            }],
        };
        let (ahead, gone) = (decision(true, &["dated"]), decision(false, &[]));
        let slip = plan(vec![ahead.clone(), gone.clone(), gone.clone()]);
        assert!(refuse_to_empty(&slip).is_err());
        let kept = decision(false, &["last"]);
        for fine in [vec![ahead.clone()], vec![ahead, kept, gone]] {
            assert!(refuse_to_empty(&plan(fine)).is_ok());
        }
    }

    #[test]
    fn durations_of_keep_within_are_read_as_restic_users_write_them() {
        assert_eq!(within("2y5m7d3h").unwrap().get_months(), 5);
        for wrong in ["", "5", "d", "1w"] {
            assert!(within(wrong).is_err(), "{wrong}");
        }
    }
}
