//! Lua 5.4 patterns with a step budget, so that excessive backtracking is aborted.

use super::budget::{BudgetExceeded, ScriptBudget};

/// Maximum number of captures (`LUA_MAXCAPTURES`).
const MAX_CAPTURES: usize = 32;

/// Maximum nesting depth (`MAXCCALLS`).
const MAX_DEPTH: u32 = 200;

/// Steps between checks of the budget, since a check reads the clock.
const BUDGET_STRIDE: u32 = 256;

const ESCAPE: u8 = b'%';

/// Why matching failed.
#[derive(Debug)]
pub(crate) enum LuaPatternError {
    /// The pattern is malformed; Lua's message.
    Malformed(String),
    /// The budget is exhausted.
    Spent(BudgetExceeded),
}

impl From<BudgetExceeded> for LuaPatternError {
    fn from(spent: BudgetExceeded) -> Self {
        Self::Spent(spent)
    }
}

type Result<T> = std::result::Result<T, LuaPatternError>;

fn malformed<T>(message: impl Into<String>) -> Result<T> {
    Err(LuaPatternError::Malformed(message.into()))
}

/// The length of a capture; as in Lua's `lstrlib.c`, an unfinished one has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaptureLength {
    Unfinished,
    Position,
    Bytes(usize),
}

#[derive(Clone, Copy, Debug)]
struct CaptureSlot {
    start: usize,
    length: CaptureLength,
}

/// A capture of a pair of parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternCapture {
    /// A byte range.
    Range(usize, usize),
    /// `()`: a position, from 1.
    Position(usize),
}

/// Matches one pattern at positions of one text. Backtracking is by recursion, as in Lua, and bounded in depth.
pub(crate) struct LuaPatternMatcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    captures: [CaptureSlot; MAX_CAPTURES],
    level: usize,
    depth: u32,
    steps: u32,
    budget: &'a ScriptBudget,
}

impl<'a> LuaPatternMatcher<'a> {
    pub fn new(subject: &'a [u8], pattern: &'a [u8], budget: &'a ScriptBudget) -> Self {
        let captures = [CaptureSlot { start: 0, length: CaptureLength::Unfinished }; MAX_CAPTURES];
        Self { subject, pattern, captures, level: 0, depth: 0, steps: 0, budget }
    }

    /// The end of a match that begins at `at`.
    ///
    /// # Errors
    /// A malformed pattern, or an exhausted budget.
    pub fn match_at(&mut self, at: usize) -> Result<Option<usize>> {
        (self.level, self.depth) = (0, 0);
        self.step(1)?;
        self.run(at, 0)
    }

    /// The number of captures of the last match.
    pub fn captures(&self) -> usize {
        self.level
    }

    /// A capture of the last match, which was at `start..end`; the whole match if the pattern has no captures.
    ///
    /// # Errors
    /// No such capture.
    pub fn capture(&self, i: usize, start: usize, end: usize) -> Result<PatternCapture> {
        if i >= self.level {
            return if i == 0 {
                Ok(PatternCapture::Range(start, end))
            } else {
                malformed(format!("invalid capture index %{}", i + 1))
            };
        }
        let CaptureSlot { start, length } = self.captures[i];
        match length {
            CaptureLength::Unfinished => malformed("unfinished capture"),
            CaptureLength::Position => Ok(PatternCapture::Position(start + 1)),
            CaptureLength::Bytes(n) => Ok(PatternCapture::Range(start, start + n)),
        }
    }

    /// Counts steps; every [`BUDGET_STRIDE`] of them are taken from the budget.
    fn step(&mut self, n: usize) -> Result<()> {
        self.steps = self.steps.saturating_add(u32::try_from(n).unwrap_or(u32::MAX));
        if self.steps >= BUDGET_STRIDE {
            self.budget.spend(u64::from(std::mem::take(&mut self.steps)))?;
        }
        Ok(())
    }

    /// A byte of the pattern; 0 past its end, as in C.
    fn at(&self, p: usize) -> u8 {
        self.pattern.get(p).copied().unwrap_or(0)
    }

    fn run(&mut self, s: usize, p: usize) -> Result<Option<usize>> {
        if self.depth >= MAX_DEPTH {
            return malformed("pattern too complex");
        }
        self.depth += 1;
        let is_match = self.matches(s, p);
        self.depth -= 1;
        is_match
    }

    fn matches(&mut self, mut s: usize, mut p: usize) -> Result<Option<usize>> {
        while p < self.pattern.len() {
            self.step(1)?;
            match self.at(p) {
                b'(' if self.at(p + 1) == b')' => return self.open_capture(s, p + 2, CaptureLength::Position),
                b'(' => return self.open_capture(s, p + 1, CaptureLength::Unfinished),
                b')' => return self.close_capture(s, p + 1),
                b'$' if p + 1 == self.pattern.len() => return Ok((s == self.subject.len()).then_some(s)),
                ESCAPE if self.at(p + 1) == b'b' => {
                    let Some(end) = self.match_balanced(s, p + 2)? else { return Ok(None) };
                    (s, p) = (end, p + 4);
                    continue;
                }
                ESCAPE if self.at(p + 1) == b'f' => {
                    p += 2;
                    if self.at(p) != b'[' {
                        return malformed("missing '[' after '%f' in pattern");
                    }
                    let end = self.class_end(p)?;
                    // `%f` matches between a byte outside and a byte inside the set; the ends of the text count as a
                    // zero byte.
                    let before = if s == 0 { 0 } else { self.subject[s - 1] };
                    let here = self.subject.get(s).copied().unwrap_or(0);
                    if self.is_in_set(before, p, end - 1) || !self.is_in_set(here, p, end - 1) {
                        return Ok(None);
                    }
                    p = end;
                    continue;
                }
                ESCAPE if self.at(p + 1).is_ascii_digit() => {
                    let Some(end) = self.back_reference(s, self.at(p + 1))? else { return Ok(None) };
                    (s, p) = (end, p + 2);
                    continue;
                }
                _ => {}
            }
            let end = self.class_end(p)?;
            self.step(end - p)?;
            match (self.matches_single(s, p, end), self.at(end)) {
                (false, b'*' | b'?' | b'-') => p = end + 1,
                (false, _) => return Ok(None),
                (true, b'?') => {
                    if let Some(found) = self.run(s + 1, end + 1)? {
                        return Ok(Some(found));
                    }
                    p = end + 1;
                }
                (true, b'+') => return self.match_longest(s + 1, p, end),
                (true, b'*') => return self.match_longest(s, p, end),
                (true, b'-') => return self.match_shortest(s, p, end),
                (true, _) => (s, p) = (s + 1, end),
            }
        }
        Ok(Some(s))
    }

    /// Greedy: as many as possible, then fewer until the rest matches.
    fn match_longest(&mut self, s: usize, p: usize, end: usize) -> Result<Option<usize>> {
        let mut i = 0;
        while self.matches_single(s + i, p, end) {
            i += 1;
            self.step(end - p)?;
        }
        loop {
            if let Some(found) = self.run(s + i, end + 1)? {
                return Ok(Some(found));
            }
            self.step(1)?;
            let Some(less) = i.checked_sub(1) else { return Ok(None) };
            i = less;
        }
    }

    /// As few as possible, then more until the rest matches.
    fn match_shortest(&mut self, mut s: usize, p: usize, end: usize) -> Result<Option<usize>> {
        loop {
            if let Some(found) = self.run(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.matches_single(s, p, end) {
                return Ok(None);
            }
            s += 1;
            self.step(end - p)?;
        }
    }

    fn open_capture(&mut self, s: usize, p: usize, length: CaptureLength) -> Result<Option<usize>> {
        if self.level >= MAX_CAPTURES {
            return malformed("too many captures");
        }
        self.captures[self.level] = CaptureSlot { start: s, length };
        self.level += 1;
        let range = self.run(s, p)?;
        if range.is_none() {
            self.level -= 1;
        }
        Ok(range)
    }

    fn close_capture(&mut self, s: usize, p: usize) -> Result<Option<usize>> {
        let open = self.captures[..self.level].iter().rposition(|c| c.length == CaptureLength::Unfinished);
        let Some(open) = open else { return malformed("invalid pattern capture") };
        self.captures[open].length = CaptureLength::Bytes(s - self.captures[open].start);
        let range = self.run(s, p)?;
        if range.is_none() {
            self.captures[open].length = CaptureLength::Unfinished;
        }
        Ok(range)
    }

    fn back_reference(&mut self, s: usize, digit: u8) -> Result<Option<usize>> {
        let capture = usize::from(digit).checked_sub(usize::from(b'1')).filter(|i| *i < self.level);
        let capture = capture.map(|i| self.captures[i]);
        let (start, length) = match capture {
            Some(CaptureSlot { start, length: CaptureLength::Bytes(n) }) => (start, n),
            Some(CaptureSlot { length: CaptureLength::Position, .. }) => return Ok(None),
            _ => return malformed(format!("invalid capture index %{} in pattern", i32::from(digit) - i32::from(b'0'))),
        };
        self.step(length / 16)?;
        let same = self.subject[s..].starts_with(&self.subject[start..start + length]);
        Ok(same.then_some(s + length))
    }

    fn match_balanced(&mut self, s: usize, p: usize) -> Result<Option<usize>> {
        if p + 1 >= self.pattern.len() {
            return malformed("malformed pattern (missing arguments to '%b')");
        }
        let (begin, end) = (self.at(p), self.at(p + 1));
        if self.subject.get(s) != Some(&begin) {
            return Ok(None);
        }
        let mut open = 1;
        for i in s + 1..self.subject.len() {
            self.step(1)?;
            let c = self.subject[i];
            if c == end {
                open -= 1;
                if open == 0 {
                    return Ok(Some(i + 1));
                }
            } else if c == begin {
                open += 1;
            }
        }
        Ok(None)
    }

    /// The end of the single-character class that begins at `p`.
    fn class_end(&self, p: usize) -> Result<usize> {
        let len = self.pattern.len();
        let mut p = p + 1;
        match self.at(p - 1) {
            ESCAPE if p >= len => malformed("malformed pattern (ends with '%')"),
            ESCAPE => Ok(p + 1),
            b'[' => {
                if self.at(p) == b'^' {
                    p += 1;
                }
                loop {
                    if p >= len {
                        return malformed("malformed pattern (missing ']')");
                    }
                    p += 1;
                    if self.at(p - 1) == ESCAPE && p < len {
                        p += 1;
                    }
                    if p < len && self.at(p) == b']' {
                        return Ok(p + 1);
                    }
                }
            }
            _ => Ok(p),
        }
    }

    fn matches_single(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&c) = self.subject.get(s) else { return false };
        match self.at(p) {
            b'.' => true,
            ESCAPE => class_contains(c, self.at(p + 1)),
            b'[' => self.is_in_set(c, p, end - 1),
            plain => plain == c,
        }
    }

    /// Whether the byte is in the set from the `[` at `p` to the `]` at `last`.
    fn is_in_set(&self, c: u8, mut p: usize, last: usize) -> bool {
        let mut positive = true;
        if self.at(p + 1) == b'^' {
            (positive, p) = (false, p + 1);
        }
        p += 1;
        while p < last {
            if self.at(p) == ESCAPE {
                p += 1;
                if class_contains(c, self.at(p)) {
                    return positive;
                }
            } else if self.at(p + 1) == b'-' && p + 2 < last {
                p += 2;
                if (self.at(p - 2)..=self.at(p)).contains(&c) {
                    return positive;
                }
            } else if self.at(p) == c {
                return positive;
            }
            p += 1;
        }
        !positive
    }
}

/// Whether a byte belongs to a class such as `%a`; a capital letter negates it, any other character matches itself.
fn class_contains(c: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => c.is_ascii_alphabetic(),
        b'c' => c.is_ascii_control(),
        b'd' => c.is_ascii_digit(),
        b'g' => c.is_ascii_graphic(),
        b'l' => c.is_ascii_lowercase(),
        b'p' => c.is_ascii_punctuation(),
        b's' => matches!(c, b' ' | b'\t'..=b'\r'),
        b'u' => c.is_ascii_uppercase(),
        b'w' => c.is_ascii_alphanumeric(),
        b'x' => c.is_ascii_hexdigit(),
        // Undocumented, but still supported by Lua.
        b'z' => c == 0,
        _ => return class == c,
    };
    is != class.is_ascii_uppercase()
}
