//! `FaultyStore`: a store that breaks as it is told.
//!
//! Faults of one call: an error before or after the work was done, a body cut short, a bit flipped,
//! a listing that lies. Faults of the place: it is full after so many bytes; the process is killed
//! at a call, which is how "kill at every store operation" is tested: run with `crash_after(n, ..)`
//! for n = 0, 1, ... until a run is through, and look each time at the inner store, which is what
//! the crash left.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bale_repository::store::{
    Area, ObjectInfo, ObjectName, ObjectWriter, PackContent, Result, Store, StoreError,
};

use crate::recording_store::{Call, Verb};

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedFault {
    /// Calls it may strike; every verb if `None`.
    pub verb: Option<Verb>,
    /// Objects it may strike; every area if `None`.
    pub area: Option<Area>,
    /// Calls of that verb and area that go well first.
    pub after_calls: u64,
    /// Whether it strikes one call or every one from then on.
    pub for_ever: bool,
    /// What it does.
    pub effect: Effect,
}

/// What a fault does to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Fails, having done nothing.
    Fail(io::ErrorKind),
    /// Does all, then fails: the answer was lost on its way.
    FailAfterwards(io::ErrorKind),
    /// `get` returns so many bytes less, and says all is well; `read_at` fills the same part of its
    /// end with zeros.
    CutShort(usize),
    /// `get` and `read_at` return bytes with this bit, counted from the first and wrapping around,
    /// the other way.
    FlipBit(u64),
    /// `list` lies, and says all is well.
    List(ListFault),
}

/// How a listing lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListFault {
    /// Every n-th entry, starting with the first, is left out.
    DropEvery(usize),
    /// Every entry comes twice.
    Duplicate,
    /// The order is turned around.
    Reverse,
}

impl InjectedFault {
    /// Strikes the first call of any kind, once.
    pub fn new(effect: Effect) -> Self {
        Self {
            verb: None,
            area: None,
            after_calls: 0,
            for_ever: false,
            effect,
        }
    }

    /// Fails once with an input/output error.
    pub fn error() -> Self {
        Self::new(Effect::Fail(io::ErrorKind::Other))
    }

    /// Only calls of this verb.
    pub fn of(self, verb: Verb) -> Self {
        Self {
            verb: Some(verb),
            ..self
        }
    }

    /// Only calls in this area.
    pub fn within(self, area: Area) -> Self {
        Self {
            area: Some(area),
            ..self
        }
    }

    /// Only after so many of these calls.
    pub fn after(self, after_calls: u64) -> Self {
        Self {
            after_calls,
            ..self
        }
    }

    /// From then on always.
    pub fn for_ever(self) -> Self {
        Self {
            for_ever: true,
            ..self
        }
    }
}

/// A store that breaks as it is told. Clones share the plan.
#[derive(Clone)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Default)]
struct Plan {
    faults: Vec<(InjectedFault, u64)>,
    calls: u64,
    crash: Option<Crash>,
    bytes_free: Option<u64>,
}

#[derive(Clone, Copy)]
struct Crash {
    after_calls: u64,
    last_is_done: bool,
}

impl FaultyStore {
    /// Without faults as yet.
    pub fn over(inner: impl Store + 'static) -> Self {
        Self {
            inner: Arc::new(inner),
            plan: Arc::default(),
        }
    }

    /// Adds a fault.
    pub fn inject(&self, fault: InjectedFault) -> &Self {
        self.lock().faults.push((fault, 0));
        self
    }

    /// After so many more calls, appends among them, nothing answers any more. `last_is_done` says
    /// whether the call that the crash struck had its effect.
    pub fn crash_after(&self, calls: u64, last_is_done: bool) -> &Self {
        let mut plan = self.lock();
        plan.crash = Some(Crash {
            after_calls: plan.calls + calls,
            last_is_done,
        });
        drop(plan);
        self
    }

    /// Whether the crash has come.
    pub fn crashed(&self) -> bool {
        let plan = self.lock();
        plan.crash
            .is_some_and(|crash| plan.calls > crash.after_calls)
    }

    /// Takes so many more bytes and is full then.
    pub fn full_after(&self, bytes: u64) -> &Self {
        self.lock().bytes_free = Some(bytes);
        self
    }

    /// No faults from here on; a crash is undone too.
    pub fn heal(&self) {
        let calls = self.lock().calls;
        *self.lock() = Plan {
            calls,
            ..Plan::default()
        };
    }

    /// Calls so far, appends among them.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    fn lock(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to happen to this call besides its work.
    fn strike(&self, call: &Call) -> std::result::Result<Option<Effect>, io::Error> {
        let mut plan = self.lock();
        plan.calls += 1;
        if let Some(crash) = plan.crash {
            if plan.calls == crash.after_calls + 1 && crash.last_is_done {
                return Ok(Some(Effect::FailAfterwards(io::ErrorKind::Other)));
            }
            if plan.calls > crash.after_calls {
                return Err(io::Error::other("crashed"));
            }
        }
        if matches!(call.verb, Verb::Put | Verb::Append)
            && let Some(free) = plan.bytes_free
        {
            plan.bytes_free = Some(free.saturating_sub(call.bytes));
            if call.bytes > free {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        plan.effect_on(call)
    }

    fn call<T>(&self, call: Call, work: impl FnOnce() -> Result<T>) -> Result<(T, Option<Effect>)> {
        match self.strike(&call) {
            Ok(Some(Effect::FailAfterwards(kind))) => {
                work()?;
                Err(self.error(&call, kind.into()))
            }
            Ok(effect) => Ok((work()?, effect)),
            Err(error) => Err(self.error(&call, error)),
        }
    }

    fn error(&self, call: &Call, source: io::Error) -> StoreError {
        let object = call
            .name
            .map_or_else(|| call.area.to_string(), |name| name.to_string());
        let action = match call.verb {
            Verb::Get | Verb::ReadAt => "read",
            Verb::Stat => "stat",
            Verb::List => "list",
            Verb::Delete => "delete",
            Verb::Put | Verb::Begin | Verb::Append | Verb::Publish => "write",
        };
        StoreError {
            action,
            object: format!("{object} in {} (simulated fault)", self.place()),
            source,
        }
    }
}

impl Plan {
    fn effect_on(&mut self, call: &Call) -> std::result::Result<Option<Effect>, io::Error> {
        let mut effect = None;
        for (fault, calls) in &mut self.faults {
            let may_strike = fault.verb.is_none_or(|verb| verb == call.verb)
                && fault.area.is_none_or(|area| area == call.area);
            if !may_strike {
                continue;
            }
            *calls += 1;
            let due =
                *calls == fault.after_calls + 1 || fault.for_ever && *calls > fault.after_calls;
            match fault.effect {
                Effect::Fail(kind) if due => return Err(kind.into()),
                other if due => effect = Some(other),
                _ => {}
            }
        }
        Ok(effect)
    }
}

fn damage(effect: Option<Effect>, bytes: &mut [u8]) -> usize {
    match effect {
        Some(Effect::FlipBit(bit)) if !bytes.is_empty() => {
            let bit = usize::try_from(bit % (bytes.len() as u64 * 8))
                .expect("less than the bits of a slice");
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes.len()
        }
        Some(Effect::CutShort(missing)) => {
            let kept = bytes.len().saturating_sub(missing);
            bytes[kept..].fill(0);
            kept
        }
        _ => bytes.len(),
    }
}

impl Store for FaultyStore {
    // Not handed on: expect, are_there: no test needs them of it.
    // Not handed on: shape, upload, takes_streams, begin_stream: no test needs them of it.
    // Not handed on: list_foreign, tiers, hot_failed, cold_classes: no test needs them of it.
    // Not handed on: object_locks: no test needs them of it.

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.call(Call::on(Verb::Put, name, bytes.len()), || {
            self.inner.put(name, bytes)
        })
        .map(|_| ())
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.begin_pack(PackContent::Metadata)
    }

    fn begin_pack(&self, content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        let (inner, _) = self.call(Call::within(Verb::Begin, Area::Packs, 0), || {
            self.inner.begin_pack(content)
        })?;
        Ok(Box::new(FaultyWriter {
            store: self.clone(),
            inner,
            failed: false,
        }))
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        let (mut bytes, effect) = self.call(Call::on(Verb::Get, name, 0), || {
            self.inner.get(name, len_max)
        })?;
        let kept = damage(effect, &mut bytes);
        bytes.truncate(kept);
        Ok(bytes)
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        let call = Call::on(Verb::ReadAt, name, buf.len());
        let ((), effect) = self.call(call, || self.inner.read_at(name, offset, buf))?;
        damage(effect, buf);
        Ok(())
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.call(Call::on(Verb::Stat, name, 0), || self.inner.stat(name))
            .map(|(info, _)| info)
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        let mut infos = Vec::new();
        let call = Call::within(Verb::List, area, 0);
        let ((), effect) =
            self.call(call, || self.inner.list(area, &mut |info| infos.push(info)))?;
        match effect {
            Some(Effect::List(ListFault::DropEvery(nth))) => {
                infos
                    .into_iter()
                    .enumerate()
                    .filter(|(at, _)| at % nth.max(1) != 0)
                    .for_each(|(_, info)| found(info));
            }
            Some(Effect::List(ListFault::Duplicate)) => {
                infos.into_iter().for_each(|info| {
                    found(info.clone());
                    found(info);
                });
            }
            Some(Effect::List(ListFault::Reverse)) => infos.into_iter().rev().for_each(found),
            _ => infos.into_iter().for_each(found),
        }
        Ok(())
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.call(Call::on(Verb::Delete, name, 0), || self.inner.delete(name))
            .map(|_| ())
    }

    fn place(&self) -> String {
        self.inner.place()
    }

    fn keeps_the_first(&self) -> bool {
        self.inner.keeps_the_first()
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn is_tiered(&self) -> bool {
        self.inner.is_tiered()
    }
}

struct FaultyWriter {
    store: FaultyStore,
    inner: Box<dyn ObjectWriter>,
    failed: bool,
}

impl FaultyWriter {
    fn refuse_after_error(&self, call: &Call) -> Result<()> {
        match self.failed {
            true => Err(self
                .store
                .error(call, io::Error::other("refused after an earlier error"))),
            false => Ok(()),
        }
    }
}

impl ObjectWriter for FaultyWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let call = Call::within(Verb::Append, Area::Packs, bytes.len());
        self.refuse_after_error(&call)?;
        let Self {
            store,
            inner,
            failed,
        } = self;
        let appended = store.call(call, || inner.append(bytes));
        *failed = appended.is_err();
        appended.map(|_| ())
    }

    fn publish(self: Box<Self>, name: &ObjectName) -> Result<()> {
        let call = Call::on(Verb::Publish, name, 0);
        self.refuse_after_error(&call)?;
        let Self { store, inner, .. } = *self;
        store.call(call, || inner.publish(name)).map(|_| ())
    }
}
