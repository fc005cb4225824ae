//! `interflow media inspect`: the box tree of a file, its tracks, codecs, schemes, KIDs.

use std::path::PathBuf;

use clap::Args;
use interflow_media::bmff::{BoxNode, codec_string};
use interflow_media::cenc::InitSegment;
use serde_json::{Value, json};

use super::file::MediaFile;
use crate::Result;
use crate::cli::output::{FormatArgs, TextFormat, print};

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// MP4 file or segment.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub format: FormatArgs<TextFormat>,
}

pub fn run(args: &InspectArgs) -> Result<()> {
    let file = MediaFile::read(&args.file)?;
    let mut text = String::new();
    match args.format.get() {
        TextFormat::Json => {
            let tracks = file.init.as_ref().map(tracks).unwrap_or_default();
            let boxes: Vec<Value> = file.boxes.iter().map(as_json).collect();
            text = json!({ "tracks": tracks, "pssh": systems(&file), "boxes": boxes }).to_string();
            text.push('\n');
        }
        TextFormat::Text => {
            file.boxes.iter().for_each(|node| draw(node, 0, &mut text));
            describe(&file, &mut text);
        }
    }
    print(&text);
    Ok(())
}

fn draw(node: &BoxNode, depth: usize, text: &mut String) {
    let size = node.size.map_or_else(|| "to the end".into(), |n| n.to_string());
    let name = format!("{:indent$}{}", "", node.kind, indent = 2 * depth);
    text.push_str(format!("{:>12} {size:>10}  {name:<24} {}", node.offset, node.note).trim_end());
    text.push('\n');
    node.children.iter().for_each(|inner| draw(inner, depth + 1, text));
}

fn as_json(node: &BoxNode) -> Value {
    let children: Vec<Value> = node.children.iter().map(as_json).collect();
    json!({ "type": node.kind.to_string(), "offset": node.offset, "size": node.size, "note": node.note, "boxes": children })
}

/// Every track as a JSON object.
pub fn tracks(init: &InitSegment) -> Vec<Value> {
    let protected: Vec<_> = init.protected().collect();
    init.movie
        .tracks
        .iter()
        .map(|track| {
            let entry = track.entries.first();
            let crypt = protected.iter().find(|p| p.track == track.id).map(|p| p.protection);
            let mut value = json!({
                "track": track.id,
                "handler": track.handler.to_string(),
                "codec": entry.map(codec_string),
                "language": track.language,
                "timescale": track.timescale,
            });
            if let Some(entry) = entry.filter(|e| e.width > 0) {
                value["width"] = entry.width.into();
                value["height"] = entry.height.into();
            }
            if let Some(entry) = entry.filter(|e| e.channels > 0) {
                value["channels"] = entry.channels.into();
                value["rate"] = entry.rate.into();
            }
            if let Some(crypt) = crypt {
                let pattern = crypt.pattern.map_or((0, 0), |p| (p.crypt, p.skip));
                value["scheme"] = crypt.scheme.as_str().into();
                value["kid"] = crypt.kid.to_string().into();
                value["iv_size"] = crypt.iv_size.into();
                value["constant_iv"] = crypt.constant_iv.is_some().into();
                value["pattern"] = format!("{}:{}", pattern.0, pattern.1).into();
            }
            value
        })
        .collect()
}

fn systems(file: &MediaFile) -> Vec<Value> {
    let all = file.init.iter().flat_map(|init| &init.pssh);
    all.map(|p| {
        let kids: Vec<String> = p.kids.iter().map(ToString::to_string).collect();
        let id = hex::encode(p.system);
        json!({ "system": id, "name": p.system_name(), "kids": kids, "data": p.data })
    })
    .collect()
}

/// Formats tracks and DRM systems as text.
pub fn describe(file: &MediaFile, text: &mut String) {
    for value in file.init.as_ref().map(tracks).unwrap_or_default() {
        let field = |name: &str| value[name].as_str().unwrap_or("?").to_owned();
        text.push_str(&format!("\ntrack {}: {} {}", value["track"], field("handler"), field("codec")));
        if value["width"].is_number() {
            text.push_str(&format!(", {}x{}", value["width"], value["height"]));
        }
        if value["channels"].is_number() {
            text.push_str(&format!(", {} channels, {} Hz", value["channels"], value["rate"]));
        }
        text.push_str(&format!(", language {}", field("language")));
        if value["scheme"].is_string() {
            let iv = if value["constant_iv"] == true {
                "constant IV".into()
            } else {
                format!("IV of {} bytes", value["iv_size"])
            };
            let [scheme, kid, pattern] = ["scheme", "kid", "pattern"].map(field);
            text.push_str(&format!("\n  encrypted: {scheme}, KID {kid}, {iv}, pattern {pattern}"));
        }
    }
    for value in systems(file) {
        let name = value["name"].as_str().unwrap_or("unknown").to_owned();
        text.push_str(&format!("\npssh: {name} ({}), {} bytes", value["system"].as_str().unwrap_or(""), value["data"]));
    }
    text.push('\n');
}
