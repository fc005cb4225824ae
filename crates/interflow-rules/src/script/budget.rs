//! The budget of one script run: instructions and steps, time, and memory outside Lua.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use mlua::{FromLuaMulti, Function, IntoLuaMulti, Lua};

/// The limits of a run, from the action or from `rules.script_*`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScriptLimits {
    pub time: Duration,
    pub instructions: u64,
    pub memory: usize,
}

/// What is left of the limits. Shared by the Lua hook and the functions that are called from Lua.
#[derive(Debug)]
pub(crate) struct ScriptBudget {
    limits: ScriptLimits,
    deadline: Instant,
    used: AtomicU64,
    held: AtomicUsize,
    cancelled: Arc<AtomicBool>,
}

/// The exhausted resource, with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetExceeded {
    Instructions(u64),
    Time(Duration),
    Memory(usize),
    Cancelled,
}

impl fmt::Display for BudgetExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instructions(n) => write!(f, "it used more than {n} instructions"),
            Self::Time(t) => write!(f, "it ran longer than {t:?}"),
            Self::Memory(n) => write!(f, "it needs more than {n} bytes of memory"),
            Self::Cancelled => f.write_str("it was cancelled"),
        }
    }
}

impl std::error::Error for BudgetExceeded {}

impl ScriptBudget {
    /// A budget whose time starts now.
    pub fn begin(limits: ScriptLimits, cancelled: Arc<AtomicBool>) -> Self {
        let deadline = Instant::now() + limits.time;
        Self { limits, deadline, used: AtomicU64::new(0), held: AtomicUsize::new(0), cancelled }
    }

    /// Takes steps from the budget and checks the clock and whether the caller still waits.
    ///
    /// # Errors
    /// The exhausted resource.
    pub fn spend(&self, steps: u64) -> Result<(), BudgetExceeded> {
        if self.used.fetch_add(steps, Relaxed).saturating_add(steps) > self.limits.instructions {
            return Err(BudgetExceeded::Instructions(self.limits.instructions));
        }
        if Instant::now() >= self.deadline {
            return Err(BudgetExceeded::Time(self.limits.time));
        }
        if self.cancelled.load(Relaxed) { Err(BudgetExceeded::Cancelled) } else { Ok(()) }
    }

    /// Charges a function that processes this many bytes once: a step per 16 bytes.
    ///
    /// # Errors
    /// The exhausted resource.
    pub fn spend_bytes(&self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.spend(1 + bytes as u64 / 16)
    }

    /// A Lua function that spends from this budget.
    ///
    /// # Errors
    /// Lua has no memory for it.
    pub fn function<A: FromLuaMulti, R: IntoLuaMulti>(
        self: &Arc<Self>,
        lua: &Lua,
        f: impl Fn(&Lua, A, &Self) -> mlua::Result<R> + Send + 'static,
    ) -> mlua::Result<Function> {
        let budget = Arc::clone(self);
        lua.create_function(move |lua, args| f(lua, args, &budget))
    }

    #[cfg(test)]
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }
}

/// Bytes outside Lua's own memory that count towards its limit until this is dropped.
pub(crate) struct HeldMemory<'b> {
    budget: &'b ScriptBudget,
    bytes: usize,
}

impl<'b> HeldMemory<'b> {
    pub fn new(budget: &'b ScriptBudget) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Accounts for more bytes, before they are allocated.
    ///
    /// # Errors
    /// The memory limit is exceeded.
    pub fn grow(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.bytes += bytes;
        let limit = self.budget.limits.memory;
        if self.budget.held.fetch_add(bytes, Relaxed).saturating_add(bytes) > limit {
            return Err(BudgetExceeded::Memory(limit));
        }
        Ok(())
    }
}

impl Drop for HeldMemory<'_> {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Relaxed);
    }
}
