//! `interflow flows export` and `import`.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use interflow_archive::pcapng::{PacketSides, PcapngOptions};
use interflow_archive::{self, ArchiveFormat, ExportOptions, FlowExporter, for_each_readable, fxzy};
use interflow_files::{AtomicFile, FileAccess, owner_only};
use interflow_host::data_dir::DataDir;
use interflow_store::FlowStore;
use interflow_types::Direction;
use interflow_types::units::pluralize;

use super::compressed_output::CompressedOutput;
use super::progress::ProgressDisplay;
use super::{FlowExportArgs, open};
use crate::cli::operations::{OperationCall, OperationId, Operations, on_recording};
use crate::cli::output::{ignore_broken_pipe, members};
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result};

/// Exports the flows of a query, oldest first.
pub fn export(store: &dyn FlowStore, args: &FlowExportArgs) -> Result<()> {
    let damaged_bodies = export_to(store, args)?;
    let damaged_flows = store.damaged_flows();
    if damaged_bodies + damaged_flows == 0 {
        return Ok(());
    }
    // What is sound is written; who relies on the exit code learns that it is not all.
    Err(CliError::Failed(format!(
        "the recording is damaged: {} left out, and the bodies of {} end at the damage; the rest is exported, and `interflow \
         flows check` lists the damage",
        pluralize(damaged_flows, "flow"),
        pluralize(damaged_bodies, "flow")
    )))
}

/// Returns the number of flows with damaged bodies.
fn export_to(store: &dyn FlowStore, args: &FlowExportArgs) -> Result<u64> {
    let by_name = args
        .output
        .as_deref()
        .and_then(Path::file_name)
        .and_then(|n| ArchiveFormat::from_file_name(&n.to_string_lossy()));
    let format = args.format.or(by_name).unwrap_or(ArchiveFormat::Har);
    let of_packets = args.keylog.is_some() || args.leg != PacketSides::default();
    for (is_given, needed, what) in [
        (of_packets, ArchiveFormat::Pcapng, "--leg and --keylog require the format pcapng"),
        (args.originals, ArchiveFormat::Jsonl, "--originals requires the format jsonl"),
        (args.bodies, ArchiveFormat::Parquet, "--bodies requires the format parquet"),
    ] {
        if is_given && format != needed {
            return Err(CliError::Usage(format!("{what}, not {format}")));
        }
    }
    match args.output.as_ref().filter(|p| p.as_os_str() != "-") {
        None => {
            if format.is_binary() && io::stdout().is_terminal() {
                interflow_host::errln!("interflow: writing raw bytes to the terminal; use -o FILE to write a file");
            }
            let (written, result) = write(store, args, format, interflow_host::terminal::data_stdout())?;
            ignore_broken_pipe(result)?;
            Ok(written.damaged)
        }
        Some(path) => to_file(store, args, format, path),
    }
}

/// Write to a temporary name first, so that a partial file never replaces a complete one.
fn to_file(store: &dyn FlowStore, args: &FlowExportArgs, format: ArchiveFormat, path: &Path) -> Result<u64> {
    let cannot = |e: io::Error| CliError::Failed(format!("{} cannot be written: {e}", path.display()));
    let file = AtomicFile::create(path, FileAccess::Keep).map_err(cannot)?;
    let mut out = CompressedOutput::new(path, io::BufWriter::new(file));
    let (written, result) = write(store, args, format, &mut out)?;
    result.and_then(|()| out.finish()?.into_inner()?.commit()).map_err(cannot)?;
    interflow_host::errln!("{} to {}", pluralize(written.flows, "flow"), path.display());
    Ok(written.damaged)
}

/// Flows that were written, and how many of them have damaged bodies.
struct WrittenFlows {
    flows: u64,
    damaged: u64,
}

/// What was written, and the result of the output.
fn write(
    store: &dyn FlowStore,
    args: &FlowExportArgs,
    format: ArchiveFormat,
    out: impl Write,
) -> Result<(WrittenFlows, io::Result<()>)> {
    let query = open::query(&args.select.query)?;
    let deep = [Direction::Request, Direction::Response].into_iter().any(|side| query.wants_body(side));
    // Counting with a body search would take as long as the export.
    let total = if deep { 0 } else { store.count(&query)? };
    let (mut progress, mut flows, mut out, mut exporter) = (ProgressDisplay::new("exporting"), 0, Some(out), None);
    let (damaged, result) = for_each_readable(
        store,
        query,
        format.parts(args.bodies),
        &|| ControlFlow::Continue(()),
        &mut |row, contents| {
            if let Some(out) = out.take() {
                exporter = Some(begin(args, format, out)?);
            }
            exporter.iter_mut().try_for_each(|exporter: &mut Box<dyn FlowExporter>| exporter.flow(row, contents))?;
            flows += 1;
            progress.update(flows, total);
            Ok(())
        },
    )?;
    // An archive without flows is useless, and importers reject it.
    if out.is_some() {
        return Err(CliError::Failed("no flow matches the query: nothing was written".into()));
    }
    let finished = result.and_then(|()| exporter.iter_mut().try_for_each(|exporter| exporter.finish()));
    Ok((WrittenFlows { flows, damaged }, finished))
}

/// Starts the exporter; pcapng and JSONL have additional options.
fn begin<'w>(
    args: &FlowExportArgs,
    format: ArchiveFormat,
    out: impl Write + 'w,
) -> io::Result<Box<dyn FlowExporter + 'w>> {
    let keylog = args.keylog.as_deref().map(secret_file).transpose()?;
    let keylog = keylog.map(|file| Box::new(io::BufWriter::new(file)) as Box<dyn Write>);
    let packets = PcapngOptions { leg: args.leg, keylog };
    let options = ExportOptions { packets, originals: args.originals, bodies: args.bodies };
    interflow_archive::exporter_with(format, out, options)
}

/// Creates a file with mode 0600: the TLS secrets in it decrypt the recorded traffic.
fn secret_file(path: &Path) -> io::Result<File> {
    owner_only(File::options().write(true).create(true).truncate(true)).open(path)
}

/// Imports flows from files, of this format or else by detection. A rejected file does not stop the others.
pub fn import(
    files: &[PathBuf],
    format: Option<ArchiveFormat>,
    config: &InterflowConfig,
    home: &DataDir,
) -> Result<()> {
    let recording = on_recording(config, home)?;
    let import = OperationId::ImportFlows.call().query_if("format", format.map(|f| f.name()));
    let mut refused = Vec::new();
    for path in files {
        match import_one(&*recording, path, &import) {
            Ok(report) => interflow_host::outln!("{}: {report}", path.display()),
            Err(why) => refused.push(format!("{}: {why}", path.display())),
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(CliError::Failed(refused.join("\n"))) }
}

fn import_one(recording: &dyn Operations, path: &Path, import: &OperationCall) -> Result<String> {
    let cannot = |e: io::Error| CliError::Failed(format!("cannot be read: {e}"));
    let done = if path == Path::new("-") {
        recording.upload(import, Box::new(io::stdin()))?
    } else {
        let file = if path.is_dir() { fxzy::pack_to_temp_file(path) } else { File::open(path) };
        let file = file.map_err(cannot)?;
        let size = file.metadata().map_err(cannot)?.len();
        let reader = ProgressReader { file, read: 0, size, progress: ProgressDisplay::new("importing") };
        recording.upload(import, Box::new(reader))?
    };
    for reason in members(&done, "reasons").filter_map(|reason| reason.as_str()) {
        interflow_host::errln!("  left out: {reason}");
    }
    let count = |name: &str| done[name].as_u64().unwrap_or_default();
    let mut report = format!("{} imported", pluralize(count("imported"), "flow"));
    for (n, what) in [(count("present"), "already present"), (count("skipped"), "skipped")] {
        if n > 0 {
            report.push_str(&format!(", {n} {what}"));
        }
    }
    Ok(report)
}

/// A file reader that reports progress.
struct ProgressReader {
    file: File,
    read: u64,
    size: u64,
    progress: ProgressDisplay,
}

impl Read for ProgressReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buf)?;
        self.read += n as u64;
        self.progress.update(self.read, self.size);
        Ok(n)
    }
}
