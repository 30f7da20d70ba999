//! A server that lies about everything: an error with plain words each time, and never a panic, a
//! wait without end or memory without bound.

use crate::liar::{ALLOCATION, DIRTY, LEN, Liar, Line};
use crate::peer::chain;
use bale_nbd::wire::negotiation::{
    BlockSizes, encode_block_sizes, encode_context, encode_export, option, option_reply,
};
use bale_nbd::wire::reply::{
    ChunkHead, Descriptor, ReplyHead, chunk, encode_error, encode_extents, encode_head,
};
use bale_nbd::wire::request::NbdRequest;
use bale_nbd::wire::{DESCRIPTORS_KEPT_MAX, HeaderStyle, export_flags};
use bale_nbd::{NbdClient, NbdClientOptions, NbdError};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const STRUCTURED: HeaderStyle = HeaderStyle::Structured;
const EXTENDED: HeaderStyle = HeaderStyle::Extended;

fn options() -> NbdClientOptions {
    NbdClientOptions {
        dirty_bitmap: Some("b".to_owned()),
        ..NbdClientOptions::default()
    }
}

/// A server that answers the first request with a lie.
fn liar(
    style: HeaderStyle,
    answer: impl Fn(&mut Line, &NbdRequest) -> io::Result<()> + Send + 'static,
) -> Liar {
    Liar::start(move |line| {
        line.shake(style)?;
        let request = line.request(style)?;
        answer(line, &request)?;
        // Until the client has had enough.
        line.read::<1>().map(|_| ())
    })
}

/// What a read of 4096 bytes at 8192 ends with.
fn read(liar: &Liar) -> String {
    let client = NbdClient::connect(&liar.uri(), &NbdClientOptions::default()).unwrap();
    chain(&client.read_at(8192, &mut [0; 4096]).unwrap_err())
}

/// What listing extents ends with.
fn list(liar: &Liar) -> String {
    let client = NbdClient::connect(&liar.uri(), &options()).unwrap();
    let listed: Result<Vec<_>, NbdError> = client.extents(0..LEN).collect();
    chain(&listed.unwrap_err())
}

fn data(offset: u64, bytes: usize) -> Vec<u8> {
    [&offset.to_be_bytes()[..], &vec![1; bytes]].concat()
}

#[test]
fn chunks_that_do_not_answer_a_read_are_errors() {
    type Chunk = (bool, u16, Vec<u8>);
    let hole = |offset: u64, bytes: u32| [&offset.to_be_bytes()[..], &bytes.to_be_bytes()].concat();
    let lies: [(&str, Vec<Chunk>); 16] = [
        ("not what was requested", vec![(true, 1, data(8191, 4))]),
        (
            "not what was requested",
            vec![(true, 1, data(8192 + 4095, 2))],
        ),
        ("not what was requested", vec![(true, 1, data(u64::MAX, 1))]),
        ("none has more than 4104", vec![(true, 1, data(8192, 4097))]),
        ("which cannot be", vec![(true, 1, data(8192, 0))]),
        (
            "a second time",
            vec![(false, 1, data(8192, 10)), (true, 1, data(8201, 10))],
        ),
        (
            "a second time",
            vec![(false, 1, data(8202, 9)), (false, 1, data(8192, 11))],
        ),
        (
            "a second time",
            vec![(false, 2, hole(8192, 4096)), (true, 1, data(8200, 1))],
        ),
        ("not what was requested", vec![(true, 2, hole(8192, 4097))]),
        ("without a length", vec![(true, 2, hole(8192, 0))]),
        (
            "4086 bytes are missing",
            vec![(false, 1, data(8192, 10)), (true, 0, vec![])],
        ),
        (
            "without content that is not the last",
            vec![(false, 0, vec![])],
        ),
        ("which cannot be", vec![(true, 0, vec![1])]),
        ("which nobody knows", vec![(true, 77, vec![])]),
        ("does not answer this request", vec![(true, 5, vec![0; 12])]),
        (
            "without a number",
            vec![(true, chunk::ERROR_PLAIN, encode_error(0, ""))],
        ),
    ];
    for style in [STRUCTURED, EXTENDED] {
        for (words, chunks) in lies.clone() {
            let liar = liar(style, move |line, request| {
                for (is_last, kind, payload) in &chunks {
                    line.chunk(request, style, *is_last, *kind, payload)?;
                }
                Ok(())
            });
            let text = read(&liar);
            assert!(
                text.contains("the connection is lost: the server sent"),
                "{words}: {text}"
            );
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}

#[test]
fn replies_that_nobody_requested_and_heads_of_another_kind_are_errors() {
    let simple = |error: u32, cookie: u64| encode_head(&ReplyHead::Simple { error, cookie });
    let head = |cookie: u64, offset: Option<u64>, len: u64| {
        encode_head(&ReplyHead::Chunk(ChunkHead {
            is_last: true,
            kind: chunk::OFFSET_DATA,
            cookie,
            offset,
            len,
        }))
    };
    let lies = [
        (STRUCTURED, "nobody made (0x63)", head(99, None, 4104)),
        (STRUCTURED, "a reply without chunks", simple(0, 1)),
        (
            STRUCTURED,
            "a reply that begins with",
            head(1, Some(8192), 4104),
        ),
        (
            STRUCTURED,
            "none has more than",
            head(1, None, u32::MAX.into()),
        ),
        (EXTENDED, "a reply that begins with", head(1, None, 4104)),
        (
            EXTENDED,
            "whose offset is 5 and not 8192",
            head(1, Some(5), 4104),
        ),
        (
            EXTENDED,
            "none has more than",
            head(1, Some(8192), u64::MAX),
        ),
        (EXTENDED, "a reply that begins with", simple(0, 1)),
        (HeaderStyle::Simple, "nobody made (0x2)", simple(0, 2)),
        (
            HeaderStyle::Simple,
            "a reply that begins with",
            head(1, None, 4104),
        ),
        (HeaderStyle::Simple, "a reply that begins with", vec![0; 64]),
    ];
    for (style, words, bytes) in lies {
        let liar = liar(style, move |line, _| line.send(&bytes));
        let text = read(&liar);
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_reply_that_has_ended_cannot_go_on() {
    let liar = liar(STRUCTURED, |line, request| {
        line.chunk(request, STRUCTURED, true, 1, &data(8192, 4096))?;
        line.chunk(request, STRUCTURED, true, 1, &data(8192, 4096))
    });
    let client = NbdClient::connect(&liar.uri(), &NbdClientOptions::default()).unwrap();
    client.read_at(8192, &mut [0; 4096]).unwrap();
    // Sooner or later; a request that comes first fails with it.
    let text = loop {
        if let Err(error) = client.read_at(8192, &mut [0; 4096]) {
            break chain(&error);
        }
    };
    assert!(text.contains("nobody made"), "{text}");
}

#[test]
fn errors_of_a_server_are_shown_without_what_a_terminal_would_obey() {
    let liar = liar(STRUCTURED, |line, request| {
        let error = encode_error(5, "\x1b[2Jdisk\ngone");
        line.chunk(request, STRUCTURED, true, chunk::ERROR_PLAIN, &error)
    });
    let text = read(&liar);
    assert!(
        text.ends_with("that the device failed (EIO): [2Jdisk gone"),
        "{text}"
    );
}

#[test]
fn an_error_at_a_place_is_said_and_errors_without_end_are_not_heard() {
    let at = |offset: u64| [encode_error(5, "bad"), offset.to_be_bytes().to_vec()].concat();
    let good = liar(STRUCTURED, move |line, request| {
        line.chunk(request, STRUCTURED, false, 1, &data(8192, 4096))?;
        line.chunk(request, STRUCTURED, true, chunk::ERROR_OFFSET, &at(8200))
    });
    let text = read(&good);
    assert!(text.ends_with("(EIO) at 8200: bad"), "{text}");
    let elsewhere = liar(STRUCTURED, move |line, request| {
        line.chunk(request, STRUCTURED, true, chunk::ERROR_OFFSET, &at(5))
    });
    assert!(read(&elsewhere).contains("not what was requested"));
    let endless = liar(STRUCTURED, move |line, request| {
        loop {
            line.chunk(request, STRUCTURED, false, chunk::ERROR_OFFSET, &at(8200))?;
        }
    });
    assert!(read(&endless).contains("more errors in one reply"));
}

#[test]
fn extents_that_cannot_be_are_errors() {
    let list_of = |context: u32, extents: &[(u64, u64)], style| {
        let extents = extents
            .iter()
            .map(|&(bytes, flags)| Descriptor { bytes, flags });
        encode_extents(context, &extents.collect::<Vec<_>>(), style)
    };
    type List = (u32, &'static [(u64, u64)]);
    let lies: [(&str, &[List]); 9] = [
        (
            "an extent without a length",
            &[(ALLOCATION, &[(0, 0)]), (DIRTY, &[(1, 0)])],
        ),
        (
            "an extent without a length",
            &[(ALLOCATION, &[(LEN - 1, 0), (0, 0)])],
        ),
        ("beyond the end", &[(ALLOCATION, &[(LEN + 1, 0)])]),
        ("beyond the end", &[(ALLOCATION, &[(LEN, 0), (1, 0)])]),
        ("beyond the end", &[(ALLOCATION, &[(u32::MAX as u64, 0)])]),
        ("not chosen, or a second time", &[(99, &[(LEN, 0)])]),
        (
            "not chosen, or a second time",
            &[(DIRTY, &[(1, 0)]), (DIRTY, &[(1, 0)])],
        ),
        ("names no extent of context 8", &[(ALLOCATION, &[(LEN, 0)])]),
        ("which cannot be", &[(ALLOCATION, &[])]),
    ];
    for style in [STRUCTURED, EXTENDED] {
        for (words, lists) in lies {
            let kind = match style {
                EXTENDED => chunk::BLOCK_STATUS_EXTENDED,
                _ => chunk::BLOCK_STATUS,
            };
            let lists: Vec<_> = (lists.iter())
                .map(|(context, extents)| list_of(*context, extents, style))
                .collect();
            let liar = liar(style, move |line, request| {
                for (number, payload) in lists.iter().enumerate() {
                    line.chunk(request, style, number + 1 == lists.len(), kind, payload)?;
                }
                Ok(())
            });
            let text = list(&liar);
            assert!(text.contains(words), "{words}: {text}");
        }
    }
    // A count that the list does not have, and a list as long as memory.
    let count = [&ALLOCATION.to_be_bytes()[..], &9u32.to_be_bytes(), &[1; 16]].concat();
    let liar_of_count = liar(EXTENDED, move |line, request| {
        line.chunk(
            request,
            EXTENDED,
            true,
            chunk::BLOCK_STATUS_EXTENDED,
            &count,
        )
    });
    assert!(list(&liar_of_count).contains("which cannot be"));
    let endless = liar(EXTENDED, |line, request| {
        line.send(&encode_head(&ReplyHead::Chunk(ChunkHead {
            is_last: true,
            kind: chunk::BLOCK_STATUS_EXTENDED,
            cookie: request.cookie,
            offset: Some(request.offset),
            len: 8 + 16 * (1 << 40),
        })))
    });
    assert!(list(&endless).contains("none has more than"));
}

#[test]
fn a_server_that_gives_one_byte_a_time_is_followed_to_the_end() {
    let one = |context| encode_extents(context, &[Descriptor { bytes: 1, flags: 0 }], STRUCTURED);
    let liar = Liar::start(move |line| {
        line.shake(STRUCTURED)?;
        loop {
            let request = line.request(STRUCTURED)?;
            line.chunk(
                &request,
                STRUCTURED,
                false,
                chunk::BLOCK_STATUS,
                &one(ALLOCATION),
            )?;
            line.chunk(&request, STRUCTURED, true, chunk::BLOCK_STATUS, &one(DIRTY))?;
        }
    });
    let client = NbdClient::connect(&liar.uri(), &options()).unwrap();
    let found: Vec<_> = client.extents(10..1000).map(Result::unwrap).collect();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].offset, found[0].bytes), (10, 990));
}

/// What of it is not kept is requested again, and after the first time no more than is kept.
#[test]
fn of_a_reply_of_a_million_extents_few_are_kept_and_all_are_listed() {
    for style in [STRUCTURED, EXTENDED] {
        let (requests, sent) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (requests_seen, sent_seen) = (requests.clone(), sent.clone());
        let kind = match style {
            EXTENDED => chunk::BLOCK_STATUS_EXTENDED,
            _ => chunk::BLOCK_STATUS,
        };
        let liar = Liar::start(move |line| {
            line.shake(style)?;
            loop {
                let request = line.request(style)?;
                requests.fetch_add(1, Ordering::Relaxed);
                sent.fetch_add(request.bytes, Ordering::Relaxed);
                for (context, shift) in [(ALLOCATION, 0), (DIRTY, 1)] {
                    let range = request.offset..request.offset + request.bytes;
                    let one = |at: u64| Descriptor {
                        bytes: 1,
                        flags: at >> shift & 1,
                    };
                    let list: Vec<_> = range.map(one).collect();
                    let payload = encode_extents(context, &list, style);
                    line.chunk(&request, style, context == DIRTY, kind, &payload)?;
                }
            }
        });
        let client = NbdClient::connect(&liar.uri(), &options()).unwrap();
        let mut next = 0;
        for extent in client.extents(0..LEN) {
            let extent = extent.unwrap();
            assert_eq!((extent.offset, extent.bytes), (next, 1));
            assert_eq!(extent.is_hole, next & 1 == 1);
            assert_eq!(extent.is_dirty, Some(next >> 1 & 1 == 1));
            next += 1;
        }
        assert_eq!(next, LEN);
        let kept = DESCRIPTORS_KEPT_MAX as u64;
        assert_eq!(requests_seen.load(Ordering::Relaxed), LEN / kept);
        assert!(sent_seen.load(Ordering::Relaxed) < 4 * LEN);
    }
}

#[test]
fn contexts_of_different_grain_are_joined() {
    let list = |context, extents: &[(u64, u64)]| {
        let extents: Vec<_> = (extents.iter())
            .map(|&(bytes, flags)| Descriptor { bytes, flags })
            .collect();
        encode_extents(context, &extents, STRUCTURED)
    };
    // What is said of one context beyond what is said of the other is requested again.
    let liar = Liar::start(move |line| {
        line.shake(STRUCTURED)?;
        loop {
            let request = line.request(STRUCTURED)?;
            let (allocation, dirty) = match request.offset {
                0 => (
                    list(ALLOCATION, &[(100, 0), (400, 3)]),
                    list(DIRTY, &[(300, 1), (700, 0)]),
                ),
                500 => (
                    list(ALLOCATION, &[(LEN - 500, 3)]),
                    list(DIRTY, &[(LEN - 500, 0)]),
                ),
                offset => panic!("a request at {offset}"),
            };
            line.chunk(&request, STRUCTURED, false, chunk::BLOCK_STATUS, &dirty)?;
            line.chunk(&request, STRUCTURED, true, chunk::BLOCK_STATUS, &allocation)?;
        }
    });
    let client = NbdClient::connect(&liar.uri(), &options()).unwrap();
    let found = client.extents(0..LEN).map(Result::unwrap);
    let found: Vec<_> = found
        .map(|it| (it.offset, it.bytes, it.is_zero, it.is_dirty))
        .collect();
    let expected = [
        (0, 100, false, Some(true)),
        (100, 200, true, Some(true)),
        (300, LEN - 300, true, Some(false)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_is_said_of_an_export_is_not_believed_when_it_cannot_be() {
    let sizes = |minimum, preferred, maximum| {
        encode_block_sizes(BlockSizes {
            minimum,
            preferred,
            maximum,
        })
    };
    let lies = [
        (
            "an export of 9223372036854775808 bytes",
            encode_export(1 << 63, 1),
        ),
        ("are no flags", encode_export(LEN, 0)),
        ("block sizes that cannot be", sizes(0, 4096, 65536)),
        ("block sizes that cannot be", sizes(3, 4096, 65536)),
        (
            "block sizes that cannot be",
            sizes(1 << 17, 1 << 18, 1 << 20),
        ),
        ("block sizes that cannot be", sizes(4096, 512, 65536)),
        ("block sizes that cannot be", sizes(4096, 4096, 4097)),
        ("block sizes that cannot be", sizes(4096, 4096, 0)),
        ("ends early", vec![0]),
        ("ends early", vec![0, 0, 1]),
        ("too many", [encode_export(LEN, 1), vec![0]].concat()),
        ("neither length nor flags", vec![0, 9]),
    ];
    for (words, fact) in lies {
        let liar = Liar::start(move |line| {
            line.shake_with(STRUCTURED, &mut |line, option, _| {
                if option == option::GO {
                    line.reply(option, option_reply::INFO, &fact)?;
                    line.reply(option, option_reply::ACK, &[])?;
                }
                Ok(option == option::GO)
            })
        });
        let refused = NbdClient::connect(&liar.uri(), &NbdClientOptions::default());
        let text = chain(&refused.err().unwrap());
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn answers_to_options_that_are_none_are_errors() {
    type Reply = (u32, u32, Vec<u8>);
    let context = |id, name: &str| encode_context(id, name);
    let lies: [(&str, u32, Vec<Reply>); 7] = [
        (
            "nobody made",
            option::GO,
            vec![(option::LIST, option_reply::ACK, vec![])],
        ),
        ("(answer 0x9)", option::GO, vec![(option::GO, 9, vec![])]),
        (
            "(no  [0m)",
            option::GO,
            vec![(option::GO, option_reply::INVALID, b"no\n\x1b[0m".to_vec())],
        ),
        (
            "not chosen, or a second time",
            option::SET_META_CONTEXT,
            vec![(
                option::SET_META_CONTEXT,
                option_reply::META_CONTEXT,
                context(1, "base:other"),
            )],
        ),
        (
            "not chosen, or a second time",
            option::SET_META_CONTEXT,
            vec![
                (
                    option::SET_META_CONTEXT,
                    option_reply::META_CONTEXT,
                    context(1, "base:allocation")
                );
                2
            ],
        ),
        (
            "no context qemu:dirty-bitmap:b",
            option::SET_META_CONTEXT,
            vec![(option::SET_META_CONTEXT, option_reply::ACK, vec![])],
        ),
        (
            "not UTF-8",
            option::SET_META_CONTEXT,
            vec![(
                option::SET_META_CONTEXT,
                option_reply::META_CONTEXT,
                vec![0, 0, 0, 1, 0xff],
            )],
        ),
    ];
    for (words, of, replies) in lies {
        let liar = Liar::start(move |line| {
            line.shake_with(STRUCTURED, &mut |line, option, _| {
                if option == of {
                    for (option, kind, payload) in &replies {
                        line.reply(*option, *kind, payload)?;
                    }
                }
                Ok(option == of)
            })
        });
        let text = chain(&NbdClient::connect(&liar.uri(), &options()).err().unwrap());
        assert!(text.contains(words), "{words}: {text}");
    }
    for of in [option::GO, option::LIST] {
        let endless = Liar::start(move |line| {
            line.shake_with(STRUCTURED, &mut |line, option, _| {
                if option != of {
                    return Ok(false);
                }
                loop {
                    let (kind, payload) = match of {
                        option::GO => (option_reply::INFO, vec![0, 9]),
                        _ => (option_reply::SERVER, vec![0; 4]),
                    };
                    line.reply(option, kind, &payload)?;
                }
            })
        });
        let text = match of {
            option::GO => chain(
                &NbdClient::connect(&endless.uri(), &options())
                    .err()
                    .unwrap(),
            ),
            _ => chain(&NbdClient::list(&endless.uri(), &options()).unwrap_err()),
        };
        assert!(text.contains("repeats itself without end"), "{text}");
    }
    let long = Liar::start(|line| {
        line.shake_with(STRUCTURED, &mut |line, option, _| {
            let reply = bale_nbd::wire::negotiation::encode_option_reply(option, 1, &[]);
            line.send(&[&reply[..16], &[0xff; 4]].concat())?;
            Ok(true)
        })
    });
    let text = chain(&NbdClient::connect(&long.uri(), &options()).err().unwrap());
    assert!(text.contains("none has more than"), "{text}");
}

/// One whole conversation without a lie: a read, extents, a flush.
fn honest(line: &mut Line) -> io::Result<()> {
    line.shake(STRUCTURED)?;
    let request = line.request(STRUCTURED)?;
    line.chunk(&request, STRUCTURED, false, 1, &data(request.offset, 16))?;
    let rest = [
        &(request.offset + 16).to_be_bytes()[..],
        &48u32.to_be_bytes(),
    ]
    .concat();
    line.chunk(&request, STRUCTURED, true, chunk::OFFSET_HOLE, &rest)?;
    let request = line.request(STRUCTURED)?;
    for (context, is_last) in [(ALLOCATION, false), (DIRTY, true)] {
        let list = [Descriptor {
            bytes: LEN,
            flags: 1,
        }];
        let payload = encode_extents(context, &list, STRUCTURED);
        line.chunk(&request, STRUCTURED, is_last, chunk::BLOCK_STATUS, &payload)?;
    }
    let request = line.request(STRUCTURED)?;
    let cookie = request.cookie;
    line.send(&encode_head(&ReplyHead::Simple { error: 0, cookie }))?;
    line.read_vec(28).map(|_| ())
}

fn converse(liar: &Liar, idle_max: Duration) -> Result<usize, NbdError> {
    let options = NbdClientOptions {
        connect_max: idle_max,
        idle_max,
        ..options()
    };
    let client = NbdClient::connect(&liar.uri(), &options)?;
    let mut buffer = [9; 64];
    client.read_at(64, &mut buffer)?;
    let listed: Result<Vec<_>, _> = client.extents(0..LEN).collect();
    listed?;
    client.flush()?;
    Ok(buffer.iter().filter(|byte| **byte == 1).count())
}

#[test]
fn a_connection_that_ends_at_any_byte_is_an_error_and_never_half_a_result() {
    let (told, heard) = std::sync::mpsc::channel();
    let liar = Liar::start(move |line| {
        let done = honest(line);
        told.send(line.sent).unwrap();
        done
    });
    assert_eq!(converse(&liar, Duration::from_secs(60)).unwrap(), 16);
    let total = heard.recv().unwrap();
    assert!(total > 300, "{total}");
    let cuts = std::sync::Mutex::new(0..total);
    let liar = Liar::start(move |line| {
        line.sends_max = cuts.lock().unwrap().next().unwrap_or(usize::MAX);
        honest(line)
    });
    for cut in 0..total {
        let text = chain(&converse(&liar, Duration::from_secs(60)).expect_err("it was cut"));
        let words = [
            "the server ended the connection",
            "reset by peer",
            "Broken pipe",
        ];
        assert!(
            words.iter().any(|words| text.contains(words)),
            "{cut}: {text}"
        );
    }
    assert_eq!(converse(&liar, Duration::from_secs(60)).unwrap(), 16);
}

#[test]
fn a_byte_that_is_another_anywhere_ends_in_a_result_or_an_error() {
    let (told, heard) = std::sync::mpsc::channel();
    let liar = Liar::start(move |line| {
        let done = honest(line);
        told.send(line.sent).unwrap();
        done
    });
    converse(&liar, Duration::from_secs(60)).unwrap();
    let total = heard.recv().unwrap();
    let places = std::sync::Mutex::new(0..total);
    let liar = Liar::start(move |line| {
        line.flips = places.lock().unwrap().next();
        honest(line)
    });
    let mut errors = 0;
    for _ in 0..total {
        // A length that is too long is waited for, and not for long.
        errors += usize::from(converse(&liar, Duration::from_millis(100)).is_err());
    }
    // Some bytes are data, flags nobody looks at, and times may be short.
    assert!(errors > total / 2, "{errors} of {total}");
}

#[test]
fn requests_are_in_flight_together_and_answered_in_any_order() {
    const TOGETHER: usize = 8;
    let liar = Liar::start(|line| {
        line.shake(STRUCTURED)?;
        // Answers nothing before all are there, and the last one first.
        let mut requests = Vec::new();
        for _ in 0..TOGETHER {
            requests.push(line.request(STRUCTURED)?);
        }
        for request in requests.iter().rev() {
            let first = [
                &request.offset.to_be_bytes()[..],
                &[request.offset as u8; 8],
            ]
            .concat();
            line.chunk(request, STRUCTURED, false, 1, &first)?;
        }
        for request in &requests {
            let second = (request.offset + 8).to_be_bytes();
            let second = [&second[..], &[request.offset as u8; 8]].concat();
            line.chunk(request, STRUCTURED, true, 1, &second)?;
        }
        line.read::<1>().map(|_| ())
    });
    let client = NbdClient::connect(&liar.uri(), &NbdClientOptions::default()).unwrap();
    let readings: Vec<_> = (0..TOGETHER as u64)
        .map(|place| client.start_read(place * 16, vec![0xee; 16]).unwrap())
        .collect();
    for (place, reading) in readings.into_iter().enumerate() {
        assert_eq!(reading.wait().unwrap(), [place as u8 * 16; 16]);
    }
}

#[test]
fn a_second_connection_that_leads_to_another_export_is_refused() {
    let lens = std::sync::Mutex::new([LEN, LEN * 2].into_iter());
    let liar = Liar::start(move |line| {
        let len = lens.lock().unwrap().next().unwrap_or(0);
        // The first connection stays open while the second is made.
        line.shake_with(STRUCTURED, &mut |line, option, _| {
            if option == option::GO {
                let flags = export_flags::HAS_FLAGS | export_flags::CAN_MULTI_CONN;
                line.reply(option, option_reply::INFO, &encode_export(len, flags))?;
                line.reply(option, option_reply::ACK, &[])?;
            }
            Ok(option == option::GO)
        })
    });
    let options = NbdClientOptions {
        connections: 2,
        ..NbdClientOptions::default()
    };
    let text = chain(&NbdClient::connect(&liar.uri(), &options).err().unwrap());
    assert!(
        text.ends_with("another export (2097152 bytes, not 1048576)"),
        "{text}"
    );
}
