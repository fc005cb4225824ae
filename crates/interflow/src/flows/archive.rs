//! `interflow flows export` and `import`.

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};

use interflow_flow::Direction;
use interflow_record::formats::pcapng::{Leg, PcapngOptions};
use interflow_record::formats::{self, ExportOptions, Exporter, Format, Sound, fxzy};
use interflow_record::{ListOptions, Order, Store};

use super::packed::Packed;
use super::progress::Progress;
use super::writing::Writing;
use super::{ExportArgs, open, written};
use crate::Failure;
use crate::config::Config;
use crate::counted::counted;
use crate::home::Home;

/// Flows taken from the store at a time.
const PAGE: usize = 100;

/// Writes the flows of a query, the oldest first.
pub fn export(store: &dyn Store, args: &ExportArgs) -> Result<(), Failure> {
    let exported = export_to(store, args);
    open::tell_damage(store);
    exported
}

fn export_to(store: &dyn Store, args: &ExportArgs) -> Result<(), Failure> {
    let by_name = args.output.as_deref().and_then(Path::file_name).and_then(|n| Format::of_file(&n.to_string_lossy()));
    let format = args.format.or(by_name).unwrap_or(Format::Har);
    if format != Format::Pcapng && (args.keylog.is_some() || args.leg != Leg::default()) {
        return Err(Failure::Usage(format!("--leg and --keylog are for pcapng, and this is {format}")));
    }
    if format != Format::Jsonl && args.originals {
        return Err(Failure::Usage(format!("--originals is for jsonl, and this is {format}")));
    }
    match args.output.as_ref().filter(|p| p.as_os_str() != "-") {
        None => {
            if format.is_binary() && io::stdout().is_terminal() {
                anstream::eprintln!("interflow: raw bytes go to the terminal; -o FILE writes them to a file");
            }
            write(store, args, format, io::stdout().lock()).and_then(|(_, result)| written(result))
        }
        Some(path) => to_file(store, args, format, path),
    }
}

/// Under another name first, so that half a file never takes the place of a whole one.
fn to_file(store: &dyn Store, args: &ExportArgs, format: Format, path: &Path) -> Result<(), Failure> {
    let cannot = |e: io::Error| Failure::Failed(format!("{} cannot be written: {e}", path.display()));
    let part = PathBuf::from(format!("{}.part", path.display()));
    let file = File::create(&part).map_err(cannot)?;
    let mut out = Packed::new(path, io::BufWriter::new(file));
    let done = write(store, args, format, &mut out).and_then(|(flows, result)| {
        result.and_then(|()| out.finish()).and_then(|()| fs::rename(&part, path)).map(|()| flows).map_err(cannot)
    });
    match done {
        Ok(flows) => {
            anstream::eprintln!("{} to {}", counted(flows, "flow"), path.display());
            Ok(())
        }
        Err(e) => {
            let _ = fs::remove_file(&part);
            Err(e)
        }
    }
}

/// How many flows were written, and whether the output took them.
fn write(
    store: &dyn Store,
    args: &ExportArgs,
    format: Format,
    out: impl Write,
) -> Result<(u64, io::Result<()>), Failure> {
    let query = open::query(&args.select.query)?;
    let deep = [Direction::Request, Direction::Response].into_iter().any(|side| query.wants_body(side));
    // Counting by bodies would take as long as the export.
    let total = if deep { 0 } else { store.count(&query)? };
    let mut options = ListOptions { query, order: Order::Oldest, after: None, limit: PAGE };
    let (mut progress, mut flows) = (Progress::new("exporting"), 0);
    let mut exporter = match begin(args, format, out) {
        Ok(exporter) => exporter,
        Err(e) => return Ok((0, Err(e))),
    };
    let sound = Sound::of(store);
    loop {
        let page = store.list(&options)?;
        for row in &page {
            let row = sound.row(row)?;
            if let Err(e) = exporter.flow(&row, &sound) {
                return Ok((flows, Err(e)));
            }
            flows += 1;
            progress.at(flows, total);
        }
        options.after = page.last().map(|r| r.id);
        if page.len() < PAGE {
            if sound.cut() > 0 {
                let n = counted(sound.cut(), "flow");
                anstream::eprintln!(
                    "interflow: bodies of {n} are damaged on disk and were written as far as they are sound"
                );
            }
            return Ok((flows, exporter.finish()));
        }
    }
}

/// Begins the output; packets and lines have choices of their own.
fn begin<'w>(args: &ExportArgs, format: Format, out: impl Write + 'w) -> io::Result<Box<dyn Exporter + 'w>> {
    let keylog = match &args.keylog {
        Some(path) => Some(Box::new(io::BufWriter::new(secret_file(path)?)) as Box<dyn Write>),
        None => None,
    };
    let packets = PcapngOptions { leg: args.leg, keylog };
    formats::exporter_with(format, out, ExportOptions { packets, originals: args.originals })
}

/// A file that only its owner reads: what it decrypts is what was recorded.
fn secret_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Takes up the flows of files; the others go on when one is refused.
pub fn import(files: &[PathBuf], config: &Config, home: &Home) -> Result<(), Failure> {
    let writing = Writing::open(config, home)?;
    let mut refused = Vec::new();
    for path in files {
        match import_one(&writing, path) {
            Ok(report) => anstream::println!("{}: {report}", path.display()),
            Err(Failure::Failed(why) | Failure::Usage(why)) => refused.push(format!("{}: {why}", path.display())),
            Err(other) => return Err(other),
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(Failure::Failed(refused.join("\n"))) }
}

fn import_one(writing: &Writing, path: &Path) -> Result<String, Failure> {
    let cannot = |e: io::Error| Failure::Failed(format!("cannot be read: {e}"));
    let done = if path == Path::new("-") {
        writing.import(io::stdin().lock())?
    } else {
        let file = if path.is_dir() { fxzy::packed(path) } else { File::open(path) };
        let file = file.map_err(cannot)?;
        let size = file.metadata().map_err(cannot)?.len();
        writing.import(Counted { file, read: 0, size, progress: Progress::new("importing") })?
    };
    for reason in &done.reasons {
        anstream::eprintln!("  left out: {reason}");
    }
    let mut report = format!("{} imported", counted(done.imported, "flow"));
    for (n, what) in [(done.present, "there already"), (done.skipped, "left out")] {
        if n > 0 {
            report.push_str(&format!(", {n} {what}"));
        }
    }
    Ok(report)
}

/// A file that shows how far it has been read.
struct Counted {
    file: File,
    read: u64,
    size: u64,
    progress: Progress,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buf)?;
        self.read += n as u64;
        self.progress.at(self.read, self.size);
        Ok(n)
    }
}
