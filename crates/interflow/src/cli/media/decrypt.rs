//! `interflow media decrypt`: decrypts MP4 files and segments; the output has the same length.

use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use clap::{Args, ValueEnum};
use interflow_files::{AtomicFile, FileAccess};
use interflow_host::terminal::{self, StandardStream};
use interflow_media::cenc::{CencDecrypter, ContentKey, ContentKeyRing, IndexProbe, ProgressiveFile};
use interflow_media::sample_aes::{Aes128Cbc, SampleAesTs, iv_from_sequence, parse_iv};

use super::ts::TsConverter;
use super::{MediaInput, failed, keys, unreadable};
use crate::cli::flows::ProgressDisplay;
use crate::{CliError, Result};

/// Read buffer size.
const CHUNK: usize = 256 << 10;

#[derive(Debug, Args)]
pub struct DecryptArgs {
    /// File or segment; `-` for stdin.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Key as KID:KEY, or KEY alone for any KID; hex or base64 (repeatable).
    #[arg(long, value_name = "KID:KEY")]
    pub key: Vec<String>,
    /// Init segment of FILE; the output starts with it.
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// Encryption scheme.
    #[arg(long, value_enum, default_value_t = DecryptMethod::Cenc)]
    pub method: DecryptMethod,
    /// IV of an HLS segment (0x and hex digits), or its media sequence number.
    #[arg(long, value_name = "IV", default_value = "0")]
    pub iv: String,
    /// Write MPEG-TS instead of MP4 (fragmented files and segments; unencrypted input needs no key).
    #[arg(long)]
    pub ts: bool,
    /// Output file [default: stdout].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DecryptMethod {
    /// Common encryption of MP4: cenc, cens, cbc1, cbcs, PIFF.
    Cenc,
    /// HLS, METHOD=AES-128: the whole segment.
    #[value(name = "aes-128")]
    Aes128,
    /// HLS, METHOD=SAMPLE-AES in MPEG-TS (in MP4 it is cenc).
    SampleAes,
}

pub fn run(args: &DecryptArgs) -> Result<()> {
    let ring = keys(&args.key)?;
    if ring.is_empty() && !args.ts {
        return Err(CliError::Usage("no key is given: pass one with --key KID:KEY".into()));
    }
    let mut sink = ClearOutput::open(args)?;
    let result = decrypt(args, &ring, &mut sink);
    sink.close(result)
}

fn decrypt(args: &DecryptArgs, ring: &ContentKeyRing, sink: &mut ClearOutput) -> Result<()> {
    let mut input = MediaInput::open(&args.file)?;
    if args.method != DecryptMethod::Cenc {
        return segment(args, &mut input, sink);
    }
    if let (MediaInput::File(file), None, false) = (&mut input, &args.init, args.ts)
        && let Some(progressive) = index(file, &args.file, ring)?
    {
        let mut whole = progressive.range(0..progressive.length());
        return pump(&mut input, &args.file, sink, &mut |chunk, out| {
            let done = if let Some(chunk) = chunk { whole.push(chunk, out) } else { whole.finish() };
            done.map_err(|e| failed(&args.file, &e))
        });
    }
    let mut decrypter = CencDecrypter::new(ring.clone());
    let mut clear = Vec::new();
    if let Some(init) = &args.init {
        let data = std::fs::read(init).map_err(|e| unreadable(init, &e))?;
        decrypter
            .push(Bytes::from(data), &mut clear)
            .and_then(|()| decrypter.finish())
            .map_err(|e| failed(init, &e))?;
        let parsed = decrypter.init().map(Arc::clone);
        let parsed = parsed.ok_or_else(|| CliError::Failed(format!("{}: it has no `moov` box", init.display())))?;
        decrypter = CencDecrypter::for_segment(ring.clone(), parsed);
    }
    let mut ts = args.ts.then(TsConverter::default);
    pump(&mut input, &args.file, sink, &mut |chunk, out| {
        let is_end = chunk.is_none();
        let done = if let Some(chunk) = chunk { decrypter.push(chunk, &mut clear) } else { decrypter.finish() };
        done.map_err(|e| failed(&args.file, &e))?;
        let Some(to) = &mut ts else {
            out.append(&mut clear);
            return Ok(());
        };
        to.push(&mut clear, decrypter.init().is_some(), out).map_err(|e| failed(&args.file, &e))?;
        if let Some(ts) = ts.take_if(|_| is_end) { ts.finish(out).map_err(|e| failed(&args.file, &e)) } else { Ok(()) }
    })
}

/// Decrypts an HLS segment that is encrypted as a whole or by SAMPLE-AES.
fn segment(args: &DecryptArgs, input: &mut MediaInput, sink: &mut ClearOutput) -> Result<()> {
    let wrong = |e: &dyn Display| failed(&args.file, e);
    let key = match args.key.as_slice() {
        [one] => ContentKey::parse(one.rsplit(':').next().unwrap_or(one)),
        _ => None,
    };
    let key = key.ok_or_else(|| CliError::Usage("an HLS segment has one key of 16 bytes: --key KEY".into()))?;
    let iv = parse_iv(&args.iv).or_else(|| args.iv.parse().ok().map(iv_from_sequence));
    let iv = iv.ok_or_else(|| CliError::Usage("--iv must be 0x and hex digits, or a sequence number".into()))?;
    if args.method == DecryptMethod::Aes128 {
        let mut cipher = Aes128Cbc::new(&key, iv);
        return pump(input, &args.file, sink, &mut |chunk, out| match chunk {
            Some(chunk) => {
                cipher.push(chunk, out);
                Ok(())
            }
            None => cipher.finish(out).map_err(|e| wrong(&e)),
        });
    }
    let mut cipher = SampleAesTs::new(&key, iv);
    pump(input, &args.file, sink, &mut |chunk, out| match chunk {
        Some(chunk) => cipher.push(&chunk, out).map_err(|e| wrong(&e)),
        None => cipher.finish(out).map_err(|e| wrong(&e)),
    })
}

/// Reads the `moov` box of a progressive file, wherever it is.
fn index(file: &mut File, path: &Path, ring: &ContentKeyRing) -> Result<Option<Arc<ProgressiveFile>>> {
    let length = file.metadata().map_err(|e| unreadable(path, &e))?.len();
    let mut probe = IndexProbe::new(ring.clone(), length);
    while let Some(range) = probe.next_range() {
        let mut data = vec![0; ((range.end - range.start) as usize).min(CHUNK)];
        file.seek(SeekFrom::Start(range.start))
            .and_then(|_| file.read_exact(&mut data))
            .map_err(|e| unreadable(path, &e))?;
        probe.push(range.start, &data).map_err(|e| failed(path, &e))?;
    }
    file.rewind().map_err(|e| unreadable(path, &e))?;
    probe.finish().map_err(|e| failed(path, &e))
}

/// Pushes a chunk, or signals the end of input.
type PushFn<'a> = dyn FnMut(Option<Bytes>, &mut Vec<Bytes>) -> Result<()> + 'a;

fn pump(input: &mut MediaInput, path: &Path, sink: &mut ClearOutput, step: &mut PushFn<'_>) -> Result<()> {
    let length = std::fs::metadata(path).map_or(0, |m| m.len());
    let mut progress = ProgressDisplay::new("decrypting");
    let mut at = 0;
    let mut out = Vec::new();
    loop {
        let mut chunk = BytesMut::zeroed(CHUNK);
        let n = input.read(&mut chunk).map_err(|e| unreadable(path, &e))?;
        if n == 0 {
            break;
        }
        chunk.truncate(n);
        step(Some(chunk.freeze()), &mut out)?;
        out.drain(..).try_for_each(|piece| sink.write(&piece))?;
        at += n as u64;
        progress.update(at, length);
    }
    step(None, &mut out)?;
    out.iter().try_for_each(|piece| sink.write(piece))
}

/// Output of decrypted bytes. A file gets its final name only after success.
enum ClearOutput {
    Stdout(StandardStream<std::io::StdoutLock<'static>>),
    File { file: AtomicFile, path: PathBuf },
}

impl ClearOutput {
    fn open(args: &DecryptArgs) -> Result<Self> {
        let Some(path) = args.output.clone().filter(|p| p != Path::new("-")) else {
            return Ok(Self::Stdout(terminal::data_stdout()));
        };
        let file = AtomicFile::create(&path, FileAccess::Keep)
            .map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
        Ok(Self::File { file, path })
    }

    fn write(&mut self, piece: &[u8]) -> Result<()> {
        let written = match self {
            Self::Stdout(out) => out.write_all(piece),
            Self::File { file, .. } => file.write_all(piece),
        };
        written.map_err(|e| CliError::Failed(format!("the output cannot be written: {e}")))
    }

    fn close(self, result: Result<()>) -> Result<()> {
        match (self, &result) {
            (Self::Stdout(mut out), Ok(())) => out.flush().map_err(|e| CliError::Failed(e.to_string()))?,
            (Self::File { file, path }, Ok(())) => {
                file.commit().map_err(|e| CliError::Failed(format!("{} cannot be written: {e}", path.display())))?
            }
            (_, Err(_)) => {}
        }
        result
    }
}
