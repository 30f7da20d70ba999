//! What disks, other programs and other people do to objects.

use bale_format::pack::PACK_HEADER_BYTES;
use bale_repository::store::{Area, ObjectName};
use std::sync::Arc;

use super::steps::{Damage, How, What};
use super::world::World;

/// Does it; true if something is another than before.
pub fn damage(world: &mut World, step: Damage) -> bool {
    if step.what == What::Config {
        return damage_config(world, step);
    }
    let area = match step.what {
        What::Pack | What::LargestPack => Area::Packs,
        What::Index => Area::Index,
        What::Snapshot => Area::Snapshots,
        What::Run => Area::Runs,
        What::Condemned => Area::Condemned,
        What::Mark => Area::Damaged,
        What::Config => Area::Config,
    };
    if let How::Return { nth } = step.how {
        return bring_back(world, area, nth);
    }
    let mut names: Vec<ObjectName> = world
        .objects
        .keys()
        .filter(|name| name.area == area)
        .copied()
        .collect();
    // The newest first.
    names.sort_by_key(|name| std::cmp::Reverse(world.order[name]));
    if step.what == What::LargestPack {
        names.sort_by_key(|name| std::cmp::Reverse(world.objects[name].len()));
    }
    if names.is_empty() {
        return false;
    }
    let name = names[step.nth % names.len()];
    let other = |by: usize| names[(step.nth + by) % names.len()];
    let bytes = world.objects[&name].clone();
    match step.how {
        How::Swap { with } => {
            let with = other(with);
            let others = world.objects[&with].clone();
            replace(world, &with, Some(bytes.to_vec()));
            replace(world, &name, Some(others.to_vec()))
        }
        How::Replace { by } => {
            let others = world.objects[&other(by)].to_vec();
            replace(world, &name, Some(others))
        }
        how => replace(world, &name, changed(&bytes, how)),
    }
}

/// One of the two, unless the other is damaged already: what is left must always be enough.
fn damage_config(world: &mut World, step: Damage) -> bool {
    let mut names = ObjectName::configs();
    names.rotate_left(step.nth % 2);
    let [name, other] = names;
    let whole = world.config.clone();
    if world.objects.get(&other).map(|bytes| &bytes[..]) != Some(&whole[..]) {
        return false;
    }
    let bytes = match step.how {
        // Another repository's.
        How::Replace { .. } | How::Swap { .. } => Some(world.foreign_config()),
        How::Return { .. } => Some(whole.clone()),
        how => changed(&whole, how),
    };
    let before = world.objects.get(&name).map(|bytes| bytes.to_vec());
    match &bytes {
        None if before.is_some() => world.shelf.remove(&name),
        None => {}
        Some(bytes) => world.shelf.overwrite(&name, bytes.clone()),
    }
    bytes != before
}

fn changed(bytes: &[u8], how: How) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let place = |at: u64, len: usize| (at as usize * len / 1000).min(len.saturating_sub(1));
    match how {
        How::Remove => return None,
        How::Flip { at } if !bytes.is_empty() => {
            let place = place(at, bytes.len());
            bytes[place] ^= 1 << (at % 8);
        }
        How::FlipEnd { at } if !bytes.is_empty() => {
            let from_start = (at as usize % PACK_HEADER_BYTES).min(bytes.len() - 1);
            let place = match at as usize / PACK_HEADER_BYTES % 2 {
                0 => from_start,
                _ => bytes.len() - 1 - from_start,
            };
            bytes[place] ^= 1 << (at % 8);
        }
        How::Cut { bytes: cut } => bytes.truncate(bytes.len().saturating_sub(cut as usize)),
        How::Append { bytes: more } => bytes.resize(bytes.len() + more, 0x5a),
        How::Zero { at, bytes: len } if !bytes.is_empty() => {
            let start = place(at, bytes.len());
            let end = (start + len as usize).min(bytes.len());
            bytes[start..end].fill(0);
        }
        _ => {}
    }
    Some(bytes)
}

fn replace(world: &mut World, name: &ObjectName, bytes: Option<Vec<u8>>) -> bool {
    let before = world.objects[name].clone();
    if name.area == Area::Damaged {
        // What was known is not known any more.
        let read: Vec<_> = world.read_since.drain().collect();
        world.silent.extend(read);
    }
    match bytes {
        None => world.shelf.remove(name),
        Some(bytes) if bytes == *before => return false,
        Some(bytes) => {
            if bytes.len() == before.len() && name.area == Area::Packs {
                world.silent.extend(name.id());
                world.read_since.retain(|read| Some(*read) != name.id());
            }
            world.shelf.overwrite(name, bytes);
        }
    }
    true
}

fn bring_back(world: &World, area: Area, nth: usize) -> bool {
    let gone: Vec<&(ObjectName, Arc<Vec<u8>>)> = world
        .gone
        .iter()
        .rev()
        .filter(|(name, _)| name.area == area)
        .collect();
    if gone.is_empty() {
        return false;
    }
    let (name, bytes) = gone[nth % gone.len()];
    if world.objects.contains_key(name) {
        return false;
    }
    world.shelf.overwrite(name, bytes.to_vec());
    true
}
