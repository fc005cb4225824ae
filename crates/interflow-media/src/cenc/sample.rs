//! Decrypts one sample incrementally: clear and protected ranges, patterns, and input of any size.
//!
//! A sample is a list of subsamples, each with some clear bytes before its protected ones; without subsamples all of it
//! is protected. Under a pattern the protected part is a sequence of spans, encrypted blocks followed by clear ones.
//! [`SampleCursor`] counts down all three levels, so that the input may be cut at any byte.

use std::sync::Arc;

use super::cipher::{BLOCK, CbcCipher, CipherBlock, CtrCipher};
use super::decrypt_queue::{DecryptJob, DecryptQueue};
use super::keys::AesKey;
use super::protection::{CryptPattern, ProtectionScheme};

/// The position within a partially processed sample. Holds no data, so a sample of any size can be processed.
pub struct SampleCursor {
    key: Arc<AesKey>,
    scheme: ProtectionScheme,
    pattern: Option<CryptPattern>,
    iv: CipherBlock,
    // Subsamples in the queue's pool, from the next one to the end of the sample's own.
    next: usize,
    end: usize,
    clear: u64,
    protected: u64,
    /// The current span of the protected part: encrypted bytes, then clear ones. Both were already subtracted from
    /// `protected`.
    span: (u64, u64),
    ctr: CtrCipher,
    cbc: CbcCipher,
}

/// At the start of the sample; `None` if the job refers to a setup that does not exist.
impl SampleCursor {
    pub fn new(plan: &DecryptQueue, job: &DecryptJob) -> Option<Self> {
        let setup = plan.setups.get(job.setup as usize)?;
        let (first, n) = (job.subsamples.0 as usize, job.subsamples.1 as usize);
        Some(Self {
            key: Arc::clone(&setup.key),
            scheme: setup.protection.scheme,
            pattern: setup.protection.pattern,
            iv: job.iv,
            next: first,
            end: first + n,
            clear: 0,
            protected: if n == 0 { u64::from(job.size) } else { 0 },
            span: (0, 0),
            ctr: CtrCipher::new(job.iv),
            cbc: CbcCipher::new(job.iv),
        })
    }

    /// Decrypts the next bytes of the sample and returns how many of `data` were processed: all up to the sample's end,
    /// except for an incomplete CBC block, which the caller must pass again together with its missing bytes.
    pub fn feed(&mut self, plan: &DecryptQueue, data: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(rest) = data.get_mut(done..).filter(|r| !r.is_empty()) {
            let n = if self.clear > 0 {
                take(&mut self.clear, rest.len())
            } else if self.span.0 > 0 {
                match self.decrypt(rest) {
                    0 => return done,
                    n => n,
                }
            } else if self.span.1 > 0 {
                take(&mut self.span.1, rest.len())
            } else if self.protected > 0 {
                self.next_span();
                0
            } else if self.next < self.end {
                self.next_subsample(plan);
                0
            } else {
                return done;
            };
            done += n;
        }
        done
    }

    /// Starts the next subsample.
    fn next_subsample(&mut self, plan: &DecryptQueue) {
        let (clear, protected) = plan.subsamples.get(self.next).copied().unwrap_or_default();
        (self.clear, self.protected) = (u64::from(clear), u64::from(protected));
        self.next += 1;
        // ISO 23001-7 10.4: in `cbcs` the IV applies to each subsample; in other schemes the stream or chain continues.
        if self.scheme == ProtectionScheme::Cbcs {
            self.cbc = CbcCipher::new(self.iv);
        }
    }

    /// Takes the next span of the protected part: one period of the pattern, or everything that can be encrypted of it.
    fn next_span(&mut self) {
        let whole = self.protected / BLOCK as u64 * BLOCK as u64;
        self.span = match (self.scheme, self.pattern) {
            (ProtectionScheme::Cenc, _) => (self.protected, 0),
            // ISO 23001-7 9.7: without a pattern whole blocks are encrypted, and a partial block at the end stays
            // clear.
            (_, None) => (whole, self.protected - whole),
            // A period at the end of the part may be shorter: as many whole blocks as there are are encrypted, and what
            // remains after them is clear.
            (_, Some(CryptPattern { crypt, skip })) => {
                let crypt_bytes = u64::from(crypt) * BLOCK as u64;
                let encrypted = crypt_bytes.min(whole);
                let remaining = self.protected - encrypted;
                (
                    encrypted,
                    if encrypted < crypt_bytes { remaining } else { remaining.min(u64::from(skip) * BLOCK as u64) },
                )
            }
        };
        self.protected -= self.span.0 + self.span.1;
    }

    /// Decrypts the start of `data` within the span, or several whole periods.
    fn decrypt(&mut self, data: &mut [u8]) -> usize {
        if let Some(n) = self.periods(data) {
            return n;
        }
        if self.is_counter() {
            let n = take(&mut self.span.0, data.len());
            if let Some(part) = data.get_mut(..n) {
                self.ctr.apply(&self.key, part);
            }
            return n;
        }
        // CBC cannot output part of a block. The result is 0 if there is less than one; CTR is cut anywhere.
        let n = data.len().min(usize::try_from(self.span.0).unwrap_or(usize::MAX)) / BLOCK * BLOCK;
        if let Some(part) = data.get_mut(..n) {
            self.cbc.apply(&self.key, part);
        }
        self.span.0 -= n as u64;
        n
    }

    fn is_counter(&self) -> bool {
        matches!(self.scheme, ProtectionScheme::Cenc | ProtectionScheme::Cens)
    }

    /// Processes all whole periods within `data` at once. It applies only at the beginning of a whole span; anything
    /// else takes the slow path through [`next_span`](Self::next_span).
    fn periods(&mut self, data: &mut [u8]) -> Option<usize> {
        let CryptPattern { crypt, skip } = self.pattern?;
        let (crypt, skip) = (usize::from(crypt), usize::from(skip));
        let period = (crypt + skip) * BLOCK;
        if self.span != ((crypt * BLOCK) as u64, (skip * BLOCK) as u64) {
            return None;
        }
        // The span was already taken from the protected part, so one more period is available.
        let available = (self.protected / period as u64).saturating_add(1);
        let n = (data.len() / period).min(usize::try_from(available).unwrap_or(usize::MAX));
        if n == 0 {
            return None;
        }
        let data = data.get_mut(..n * period)?;
        if self.is_counter() {
            self.ctr.apply_pattern(&self.key, data, crypt, skip);
        } else {
            self.cbc.apply_pattern(&self.key, data, crypt, skip);
        }
        self.protected -= (n as u64 - 1) * period as u64;
        self.span = (0, 0);
        Some(n * period)
    }
}

/// Takes up to `n` out of what is left, and returns how much.
fn take(left: &mut u64, n: usize) -> usize {
    let consumed = (*left).min(n as u64);
    *left -= consumed;
    consumed as usize
}
