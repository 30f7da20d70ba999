//! A physical volume of LVM2, built by hand.

/// What `lvm` writes, shortened; the id is that of the disk below.
pub const TEXT: &str = r#"vg0 {
id = "aaaaaa-bbbb-cccc-dddd-eeee-ffff-gggggg"
seqno = 7
format = "lvm2" # informational
status = ["RESIZEABLE", "READ", "WRITE"]
flags = []
extent_size = 8192
physical_volumes {
pv0 {
id = "abcdef-ghij-klmn-opqr-stuv-wxyz-012345"
device = "/dev/\"odd\""
status = ["ALLOCATABLE"]
dev_size = 204800
pe_start = 2048
pe_count = 24
}
pv1 {
id = "zzzzzz-ghij-klmn-opqr-stuv-wxyz-012345"
pe_start = 2048
pe_count = 24
}
}
logical_volumes {
root {
status = ["READ", "WRITE", "VISIBLE"]
segment_count = 2
segment1 {
start_extent = 0
extent_count = 3
type = "striped"
stripe_count = 1
stripes = [
"pv0", 0
]
}
segment2 {
start_extent = 3
extent_count = 2
type = "striped"
stripe_count = 1
stripes = ["pv0", 10]
}
}
hidden { status = ["READ", "WRITE"] segment_count = 1 segment1 { start_extent = 0 extent_count = 4 type = "striped" stripe_count = 1 stripes = ["pv0", 5] } }
striped { segment_count = 1 segment1 { start_extent = 0 extent_count = 2 type = "striped" stripe_count = 2 stripes = ["pv0", 20, "pv1", 0] } }
thin { segment_count = 1 segment1 { start_extent = 0 extent_count = 2 type = "thin" } }
away { segment_count = 1 segment1 { start_extent = 0 extent_count = 2 type = "striped" stripe_count = 1 stripes = ["pv1", 0] } }
beyond { segment_count = 1 segment1 { start_extent = 0 extent_count = 9 type = "striped" stripe_count = 1 stripes = ["pv0", 20] } }
}
}
"#;

pub const EXTENT: u64 = 4 << 20;
pub const DISK_BYTES: usize = 100 << 20;
pub const AREA: usize = 4096;
pub const AREA_BYTES: usize = 1 << 20;

fn crc(bytes: &[u8]) -> [u8; 4] {
    let mut value = 0xf597_a6cfu32;
    for byte in bytes {
        value ^= u32::from(*byte);
        for _ in 0..8 {
            value = (value >> 1) ^ (0xedb8_8320 * (value & 1));
        }
    }
    value.to_le_bytes()
}

/// A physical volume with this text, which begins at that place of its area.
pub fn disk(text: &str, at: usize) -> Vec<u8> {
    let mut bytes = vec![0; DISK_BYTES];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    let text = [text.as_bytes(), &[0]].concat();
    let first = text.len().min(AREA_BYTES - at);
    put(AREA + at, &text[..first]);
    put(AREA + 512, &text[first..]);
    let number = |number: usize| (number as u64).to_le_bytes();
    let mut head = [
        b" LVM2 x[5A%r0N*>".as_slice(),
        &[1, 0, 0, 0],
        &number(AREA),
        &number(AREA_BYTES),
        &number(at),
        &number(text.len()),
        &crc(&text),
    ]
    .concat();
    head.resize(508, 0);
    put(AREA, &crc(&head));
    put(AREA + 4, &head);
    let mut label = [
        &32u32.to_le_bytes()[..],
        b"LVM2 001",
        b"abcdefghijklmnopqrstuvwxyz012345",
        &number(DISK_BYTES),
        &number(1 << 20),
        &number(0),
        &number(0),
        &number(0),
        &number(AREA),
        &number(AREA_BYTES),
        &number(0),
        &number(0),
    ]
    .concat();
    label.resize(492, 0);
    put(512, b"LABELONE");
    put(520, &number(1));
    put(528, &crc(&label));
    put(532, &label);
    bytes
}
