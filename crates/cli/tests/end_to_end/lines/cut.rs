//! A line that is cut, slow, silent, or answers what the server did not say.

use super::served::{self, Patience, Served};
use super::trial::{Ended, Trial};
use bale_remote::{Opening, Scheme};
use bale_testkit::{LineFault, Toward};
use std::io::ErrorKind;
use std::time::Duration;

/// Cuts tried in each direction: where they are differs from one length to the next.
const CUTS: u64 = 60;

/// The same while a repository is made.
const CUTS_OF_INIT: u64 = 6;

/// Answers that come to nothing, of those of a run.
const ANSWERS: u64 = 20;

/// Between places that are tried, no divisor of the length of anything.
fn spread(count: u64, length: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |number| number * length / count + number % 7)
}

/// A run without a fault.
fn undisturbed(trial: &Trial<'_>) -> (u64, u64, u64) {
    let ended = trial.run(LineFault::None, Patience::Usual);
    ended.result.unwrap();
    ended.counts
}

/// Cut once, at bytes of all the way: it goes on as if nothing had been.
fn goes_on_after_a_cut(served: &Served) {
    let trial = Trial::new(served);
    let (up, down, _) = undisturbed(&trial);
    let mut struck = 0;
    for (toward, bytes) in [(Toward::Server, up), (Toward::Client, down)] {
        for position in spread(CUTS, bytes) {
            let fault = LineFault::CutOnce(toward, position);
            let ended = trial.run(fault, Patience::Usual);
            struck += u64::from(ended.has_struck);
            let result = &ended.result;
            assert!(is_through(served, &ended), "{fault:?}: {result:?}");
        }
    }
    assert!(struck > CUTS * 2 * 9 / 10, "{struck} cuts came");
    trial.expect_whole();
}

/// A listing of FTP ends as it does when it is cut.
fn is_through(served: &Served, ended: &Ended) -> bool {
    match (&ended.result, served.scheme) {
        (Ok(()), _) => true,
        (Err((_, said)), Scheme::Ftp) => said.starts_with("list "),
        (Err(_), _) => false,
    }
}

/// Every connection is cut after so many bytes.
fn ends_where_nothing_comes_through(served: &Served) {
    let trial = Trial::new(served);
    undisturbed(&trial);
    for toward in [Toward::Server, Toward::Client] {
        for position in (0..3400).step_by(311) {
            let fault = LineFault::CutEach(toward, position);
            if let Err((_, said)) = trial.run(fault, Patience::Brief).result {
                assert!(!said.is_empty(), "{fault:?}");
            }
        }
    }
    trial.expect_whole();
}

/// An answer that the server did not give; what was requested is done.
fn believes_no_answer_of_another(served: &Served, statuses: &[u16]) {
    let trial = Trial::new(served);
    let (_, _, answers) = undisturbed(&trial);
    for status in statuses {
        for number in spread(ANSWERS.min(answers), answers) {
            let fault = LineFault::Replaced(number, *status);
            let ended = trial.run(fault, Patience::Usual);
            // What says that it passes is made again.
            let passes = match served.scheme {
                Scheme::Ftp => [421].contains(status),
                _ => [429, 500, 503].contains(status),
            };
            let result = &ended.result;
            assert!(
                !passes || is_through(served, &ended),
                "{fault:?}: {result:?}"
            );
        }
    }
    for number in spread(ANSWERS.min(answers), answers) {
        // Which of two answers was the second, nobody can say: an error, or all is well.
        let soon = Patience::Once(Duration::from_secs(2));
        let _ = trial.run(LineFault::Twice(number), soon).result;
    }
    trial.expect_whole();
}

fn waits_for_the_slow_and_not_for_the_silent(served: &Served) {
    let trial = Trial::new(served);
    let (_, _, answers) = undisturbed(&trial);
    trial.run(LineFault::Slow, Patience::Usual).result.unwrap();
    for number in [1, answers / 2] {
        let soon = Patience::Once(Duration::from_millis(400));
        let ended = trial.run(LineFault::Silent(number), soon);
        let (kind, said) = ended.result.expect_err("it is silent");
        // Of several who wait over SFTP, one ends the connection for all.
        let in_time = [ErrorKind::TimedOut, ErrorKind::ConnectionAborted];
        let is_in_time = kind.is_some_and(|kind| in_time.contains(&kind));
        assert!(!ended.is_open || is_in_time, "{kind:?}: {said}");
    }
    trial.expect_whole();
}

#[test]
fn over_webdav_a_line_cut_at_any_byte_changes_nothing() {
    goes_on_after_a_cut(&served::webdav());
}

#[test]
fn over_ftp_a_line_cut_at_any_byte_changes_nothing() {
    goes_on_after_a_cut(&served::ftp());
}

#[test]
fn over_sftp_a_line_cut_at_any_byte_changes_nothing() {
    goes_on_after_a_cut(&served::sftp());
}

#[test]
fn over_s3_a_line_cut_at_any_byte_changes_nothing() {
    goes_on_after_a_cut(&served::s3());
}

/// Also while a repository is made.
#[test]
fn a_repository_is_made_over_a_line_that_is_cut() {
    for served in served::all() {
        let line = served.line(LineFault::None);
        let make = |at, name: &str| served.open(at, name, Opening::Create, Patience::Usual);
        make(line.address(), "whole").unwrap();
        let (up, down, _) = line.counts();
        for (toward, bytes) in [(Toward::Server, up), (Toward::Client, down)] {
            for position in spread(CUTS_OF_INIT, bytes) {
                let fault = LineFault::CutOnce(toward, position);
                let line = served.line(fault);
                let made = make(line.address(), &format!("{toward:?}{position}"));
                assert!(made.is_ok(), "{fault:?}: {:?}", made.err());
            }
        }
    }
}

#[test]
fn a_line_that_always_breaks_ends_every_run_and_leaves_nothing_half() {
    for served in served::all() {
        ends_where_nothing_comes_through(&served);
    }
}

#[test]
fn over_webdav_an_answer_of_another_acknowledges_nothing() {
    believes_no_answer_of_another(&served::webdav(), &[409, 412, 503, 507]);
}

#[test]
fn over_ftp_a_reply_of_another_acknowledges_nothing() {
    believes_no_answer_of_another(&served::ftp(), &[421, 450, 552]);
}

#[test]
fn over_s3_an_answer_of_another_acknowledges_nothing() {
    believes_no_answer_of_another(&served::s3(), &[409, 412, 503, 507]);
}

#[test]
fn whoever_is_slow_is_waited_for_and_who_is_silent_is_not() {
    for served in served::all() {
        waits_for_the_slow_and_not_for_the_silent(&served);
    }
}

/// Bodies that are longer or shorter than their heads say: what came is not taken for what was
/// wanted, and is requested again. A listing that is not whole may be refused for good.
fn misses_bytes_that_were_promised_and_those_that_were_not(served: &Served) {
    let trial = Trial::new(served);
    let (_, _, answers) = undisturbed(&trial);
    let mut struck = 0;
    for more in [-1, 1] {
        for number in 0..answers {
            let fault = LineFault::OtherLength(number, more);
            let ended = trial.run(fault, Patience::Usual);
            struck += u64::from(ended.has_struck);
            let is_through = match &ended.result {
                Ok(()) => true,
                Err((_, said)) => said.starts_with("list "),
            };
            assert!(is_through, "{fault:?}: {:?}", ended.result);
        }
    }
    // Those that come in one piece with their heads.
    assert!(struck > 0, "no answer was altered");
    trial.expect_whole();
}

#[test]
fn over_rest_an_answer_of_another_length_is_requested_again() {
    misses_bytes_that_were_promised_and_those_that_were_not(&served::rest());
}

#[test]
fn over_webdav_an_answer_of_another_length_is_requested_again() {
    misses_bytes_that_were_promised_and_those_that_were_not(&served::webdav());
}

#[test]
fn over_s3_an_answer_of_another_length_is_requested_again() {
    misses_bytes_that_were_promised_and_those_that_were_not(&served::s3());
}
