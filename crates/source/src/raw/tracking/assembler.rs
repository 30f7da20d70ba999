//! Instructions of programs in the kernel (eBPF), written one after the other: as many kinds as
//! programs of this module need. Pure.

use std::collections::HashMap;

/// A register. `R1` to `R5` are lost by a call; `R0` is what it returns; `R10` is the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Register(u8);

pub(super) const R0: Register = Register(0);
pub(super) const R1: Register = Register(1);
pub(super) const R2: Register = Register(2);
pub(super) const R3: Register = Register(3);
pub(super) const R6: Register = Register(6);
pub(super) const R7: Register = Register(7);
pub(super) const R8: Register = Register(8);
pub(super) const R9: Register = Register(9);
pub(super) const R10: Register = Register(10);

/// How much is loaded or stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Width {
    Bytes4 = 0x00,
    Bytes8 = 0x18,
}

/// When a jump is made. Numbers have no sign and eight bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    Equal = 0x10,
    Differs = 0x50,
    Above = 0x20,
    AtLeast = 0x30,
}

/// What is to be done with a number in place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arithmetic {
    Add = 0x00,
    Subtract = 0x10,
    And = 0x50,
    ShiftRight = 0x70,
    Set = 0xb0,
}

/// `bpf_map_lookup_elem`.
const LOOK_UP: i32 = 1;

/// A program that grows. Labels are names; a jump may go back.
#[derive(Default)]
pub(super) struct Assembler {
    instructions: Vec<u64>,
    labels: HashMap<&'static str, usize>,
    jumps: Vec<(usize, &'static str)>,
}

impl Assembler {
    fn push(&mut self, code: u8, to: Register, from: u8, offset: i16, number: i32) {
        let registers = to.0 | from << 4;
        let word = u64::from(code)
            | u64::from(registers) << 8
            | u64::from(offset as u16) << 16
            | u64::from(number as u32) << 32;
        self.instructions.push(word);
    }

    /// `to = *(from + offset)`
    pub(super) fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.push(0x61 | width as u8, to, from.0, offset, 0);
    }

    /// `*(to + offset) = from`
    pub(super) fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.push(0x63 | width as u8, to, from.0, offset, 0);
    }

    pub(super) fn with(&mut self, what: Arithmetic, to: Register, from: Register) {
        self.push(0x0f | what as u8, to, from.0, 0, 0);
    }

    pub(super) fn with_number(&mut self, what: Arithmetic, to: Register, number: i32) {
        self.push(0x07 | what as u8, to, 0, 0, number);
    }

    /// `to = number`
    pub(super) fn set_wide(&mut self, to: Register, number: u64) {
        self.push(0x18, to, 0, 0, number as u32 as i32);
        self.push(0, R0, 0, 0, (number >> 32) as u32 as i32);
    }

    /// `to` = an array, for a look-up.
    pub(super) fn set_array(&mut self, to: Register, map: i32) {
        self.push(0x18, to, 1, 0, map);
        self.push(0, R0, 0, 0, 0);
    }

    /// `to` = where the one entry of an array is.
    pub(super) fn set_entry(&mut self, to: Register, map: i32) {
        self.push(0x18, to, 2, 0, map);
        self.push(0, R0, 0, 0, 0);
    }

    pub(super) fn jump(&mut self, to: &'static str) {
        self.jumps.push((self.instructions.len(), to));
        self.push(0x05, R0, 0, 0, 0);
    }

    pub(super) fn jump_if(&mut self, a: Register, when: When, b: Register, to: &'static str) {
        self.jumps.push((self.instructions.len(), to));
        self.push(0x0d | when as u8, a, b.0, 0, 0);
    }

    pub(super) fn jump_if_number(
        &mut self,
        a: Register,
        when: When,
        number: i32,
        to: &'static str,
    ) {
        self.jumps.push((self.instructions.len(), to));
        self.push(0x05 | when as u8, a, 0, 0, number);
    }

    pub(super) fn label(&mut self, name: &'static str) {
        let before = self.labels.insert(name, self.instructions.len());
        assert!(before.is_none(), "the label {name} is there twice");
    }

    /// `R0` = where the entry is of the array in `R1` whose number `R2` points to; 0: nowhere.
    pub(super) fn look_up(&mut self) {
        self.push(0x85, R0, 0, 0, LOOK_UP);
    }

    pub(super) fn exit(&mut self) {
        self.push(0x95, R0, 0, 0, 0);
    }

    /// The program, with its jumps.
    pub(super) fn finish(mut self) -> Vec<u64> {
        for (at, label) in &self.jumps {
            let to = self.labels.get(label).expect("the label of each jump");
            let distance = *to as i64 - *at as i64 - 1;
            let distance = i16::try_from(distance).expect("programs are short");
            self.instructions[*at] |= u64::from(distance as u16) << 16;
        }
        self.instructions
    }
}
