//! What a store must do with objects of any length whose bytes nobody holds, if it takes them.

use super::{LARGE_BYTES, assert_nothing_is_there, content, get, id, list, put, stat_len};
use crate::store::{Area, ObjectName, Store};
use bale_format::stretch::StretchName;

/// Of a store that takes objects whose bytes nobody holds.
pub(super) fn a_stream_comes_back_or_leaves_nothing(store: &dyn Store) {
    if !store.takes_streams() {
        return;
    }
    let streamed = |number| {
        ObjectName::stretch(StretchName {
            run: [9; 16],
            number,
        })
    };
    let bytes = content(12, LARGE_BYTES);
    drop(store.begin_stream().expect("begin"));
    let mut given_up = store.begin_stream().expect("begin");
    given_up.append(&bytes).expect("append");
    drop(given_up);
    assert_nothing_is_there(store);
    // Only of a repository is what is missing empty.
    put(store, &ObjectName::config(), b"config");
    assert!(list(store, Area::Stretches).is_empty());
    // Two at once, and everything else meanwhile.
    let mut writers = [0, 1].map(|number| (number, store.begin_stream().expect("begin")));
    for piece in bytes.chunks(LARGE_BYTES / 7) {
        for (number, writer) in &mut writers {
            writer.append(piece).expect("append");
            assert_eq!(stat_len(store, &streamed(*number)), None);
        }
        let name = ObjectName::index(id(piece.len() as u64));
        put(store, &name, b"beside");
        assert_eq!(get(store, &name), b"beside");
    }
    for (number, writer) in writers {
        let name = streamed(number);
        writer.publish(&name).expect("publish");
        assert!(get(store, &name) == bytes);
        let mut part = vec![0; 1 << 20];
        let offset = LARGE_BYTES - part.len();
        store
            .read_at(&name, offset as u64, &mut part)
            .expect("its end");
        assert!(part == bytes[offset..]);
        assert_eq!(list(store, Area::Stretches).len(), number as usize + 1);
    }
    // What is there stays.
    let mut other = store.begin_stream().expect("begin");
    other.append(&bytes[1..]).expect("append");
    let _may_be_refused = other.publish(&streamed(0));
    assert!(get(store, &streamed(0)) == bytes);
    for number in 0..2 {
        store.delete(&streamed(number)).expect("delete");
    }
    assert!(list(store, Area::Stretches).is_empty());
}
