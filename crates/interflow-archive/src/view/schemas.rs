//! Configured `.proto` files and descriptor sets.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use interflow_types::Direction;
use prost_reflect::text_format::FormatOptions;
use prost_reflect::{DescriptorPool, DynamicMessage};
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

/// Maximum depth of schema folders. Symbolic links to folders are not followed.
const MAX_DEPTH: usize = 16;
/// Maximum number of schemas read from one folder.
const MAX_FILES: usize = 10_000;

/// An invalid schema.
#[derive(Debug, thiserror::Error)]
#[error("the schema {}: {problem}", path.display())]
pub struct ProtoSchemaError {
    path: PathBuf,
    problem: String,
}

#[derive(Clone, Default)]
pub struct ProtoSchemas {
    pools: Vec<DescriptorPool>,
}

impl fmt::Debug for ProtoSchemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages: usize = self.pools.iter().map(|p| p.all_messages().count()).sum();
        write!(f, "Schemas({messages} messages)")
    }
}

impl ProtoSchemas {
    /// Reads `.proto` files, folders of them (which are also the import root), and compiled descriptor sets (any other
    /// file, as written by `protoc --descriptor_set_out --include_imports`).
    ///
    /// # Errors
    /// A file that cannot be read or compiled, with line and column if available.
    pub fn load<P: AsRef<Path>>(paths: &[P]) -> Result<Self, ProtoSchemaError> {
        let mut schemas = Self::default();
        for path in paths {
            let path = path.as_ref();
            let failed = |problem: String| ProtoSchemaError { path: path.to_owned(), problem };
            let pool = if path.is_dir() {
                let mut files = Vec::new();
                find(path, MAX_DEPTH, &mut files).map_err(|e| failed(e.to_string()))?;
                compile(path, &files)
            } else if path.extension().is_some_and(|e| e == "proto") {
                compile(path.parent().unwrap_or(Path::new(".")), &[path.to_owned()])
            } else {
                let bytes = fs::read(path).map_err(|e| failed(e.to_string()))?;
                DescriptorPool::decode(&bytes[..]).map_err(|e| format!("invalid descriptor set: {e}"))
            };
            schemas.pools.push(pool.map_err(failed)?);
        }
        Ok(schemas)
    }

    /// As descriptor sets (`google.protobuf.FileDescriptorSet`), encoded.
    pub fn descriptor_sets(&self) -> Vec<Vec<u8>> {
        self.pools.iter().map(DescriptorPool::encode_to_vec).collect()
    }

    /// Compiles texts of `.proto` files, by their names, to a descriptor set. An import is one of them if its path ends
    /// with the name, or a type of Google's that every compiler knows.
    ///
    /// # Errors
    /// What the compiler reports, with the file and the place in it.
    pub fn compile_texts(files: Vec<(String, String)>) -> Result<Vec<u8>, String> {
        // A file has the name by which others import it, so that it is not compiled twice.
        let is_path_of = |path: &str, name: &str| path.strip_suffix(name).is_some_and(|folder| folder.ends_with('/'));
        let lines = files.iter().flat_map(|(_, text)| text.lines().map(str::trim));
        let imports = lines.filter(|line| line.starts_with("import")).filter_map(|line| line.split(['"', '\'']).nth(1));
        let imports: Vec<&str> = imports.collect();
        let imported =
            |name: &String| imports.iter().find(|path| is_path_of(path, name)).map(|path| (*path).to_owned());
        let names: Vec<String> = files.iter().map(|(name, _)| imported(name).unwrap_or_else(|| name.clone())).collect();
        let files = names.iter().cloned().zip(files.into_iter().map(|(_, text)| text)).collect();
        let mut resolver = ChainFileResolver::new();
        resolver.add(ProtoTexts(files));
        resolver.add(GoogleFileResolver::new());
        let mut compiler = protox::Compiler::with_file_resolver(resolver);
        compiler.include_imports(true).open_files(names).map_err(|e| format!("{e:?}"))?;
        Ok(compiler.encode_file_descriptor_set())
    }

    /// The full name of a gRPC method's request or response message: `/package.Service/Method`.
    pub(super) fn message_of_method(&self, path: &str, direction: Direction) -> Option<String> {
        let (service, method) = path.split('?').next()?.trim_start_matches('/').rsplit_once('/')?;
        // A prefix may precede the service if several share a host.
        let service = service.rsplit('/').next()?;
        let service = self.pools.iter().find_map(|p| p.get_service_by_name(service))?;
        let method = service.methods().find(|m| m.name() == method)?;
        let message = match direction {
            Direction::Request => method.input(),
            Direction::Response => method.output(),
        };
        Some(message.full_name().to_owned())
    }

    /// A message in text format; `None` if no schema defines it.
    pub(super) fn text(&self, name: &str, bytes: &[u8]) -> Option<Result<String, String>> {
        let descriptor = self.pools.iter().find_map(|p| p.get_message_by_name(name))?;
        // Fields that the schema does not know are shown by number.
        let options = FormatOptions::new().pretty(true).skip_unknown_fields(false);
        let decoded = DynamicMessage::decode(descriptor, bytes).map_err(|e| e.to_string());
        Some(decoded.map(|m| m.to_text_format_with_options(&options)))
    }
}

/// Files that exist as texts only, with their names.
struct ProtoTexts(Vec<(String, String)>);

impl FileResolver for ProtoTexts {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        path.to_str().map(str::to_owned)
    }

    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let (_, text) =
            self.0.iter().find(|(file, _)| file == name).ok_or_else(|| protox::Error::file_not_found(name))?;
        File::from_source(name, text)
    }
}

fn compile(root: &Path, files: &[PathBuf]) -> Result<DescriptorPool, String> {
    let mut compiler = protox::Compiler::new([root]).map_err(|e| e.to_string())?;
    compiler.open_files(files).map_err(|e| format!("{e:?}"))?;
    Ok(compiler.descriptor_pool())
}

fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut inside: Vec<_> = fs::read_dir(folder)?.collect::<std::io::Result<_>>()?;
    inside.sort_by_key(fs::DirEntry::file_name);
    for entry in inside {
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() && depth > 0 {
            find(&path, depth - 1, files)?;
        } else if path.extension().is_some_and(|e| e == "proto") && files.len() < MAX_FILES {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use interflow_types::Headers;

    use super::*;
    use crate::view::{BinaryKind, BodyContext, pretty};

    const PROTO: &str = r#"
        syntax = "proto3";
        package shop.v1;
        import "google/protobuf/timestamp.proto";
        import "shop/item.proto";
        message Order { string id = 1; repeated Item items = 2; State state = 3; google.protobuf.Timestamp at = 4; }
        enum State { UNKNOWN = 0; PAID = 1; }
        message Receipt { int64 total = 1; }
        service Shop { rpc Buy(Order) returns (Receipt); }
    "#;
    const ITEM: &str = "syntax = \"proto3\"; package shop.v1; message Item { string name = 1; sint32 count = 2; }";

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("shop")).unwrap();
        fs::write(folder.path().join("shop/order.proto"), PROTO).unwrap();
        fs::write(folder.path().join("shop/item.proto"), ITEM).unwrap();
        folder
    }

    /// id "o1", items { name "nut", count -3 }, state PAID, and a field 9 that is not in the schema.
    const ORDER: &[u8] = b"\x0a\x02o1\x12\x07\x0a\x03nut\x10\x05\x18\x01\x48\x07";

    #[test]
    fn grpc_method_determines_its_message_types() {
        let folder = folder();
        let schemas = ProtoSchemas::load(&[folder.path()]).unwrap();
        let headers: Headers = [("content-type", "application/grpc")].into_iter().collect();
        let body = [&[0, 0, 0, 0, ORDER.len() as u8], ORDER].concat();
        let place = |direction| BodyContext { headers: &headers, path: "/shop.v1.Shop/Buy", direction, message: None };
        let shown = pretty(BinaryKind::Grpc, &place(Direction::Request), &body, &schemas, 9999).unwrap();
        for line in ["# shop.v1.Order", "id: \"o1\"", "name: \"nut\"", "count: -3", "state: PAID", "9: 7"] {
            assert!(shown.contains(line), "{line} in {shown}");
        }
        let receipt =
            pretty(BinaryKind::Grpc, &place(Direction::Response), &[0, 0, 0, 0, 2, 8, 42], &schemas, 9999).unwrap();
        assert!(receipt.contains("# shop.v1.Receipt") && receipt.contains("total: 42"), "{receipt}");
    }

    #[test]
    fn message_type_is_taken_from_the_content_type_or_the_option() {
        let folder = folder();
        let schemas = ProtoSchemas::load(&[folder.path()]).unwrap();
        let shown = |content_type: &str, message| {
            let headers: Headers = [("content-type", content_type)].into_iter().collect();
            let place = BodyContext { headers: &headers, path: "/x", direction: Direction::Request, message };
            pretty(BinaryKind::Protobuf, &place, ORDER, &schemas, 9999)
        };
        assert!(shown("application/x-protobuf; messageType=\"shop.v1.Order\"", None).unwrap().contains("id: \"o1\""));
        assert!(shown("application/x-protobuf", Some("shop.v1.Order")).unwrap().contains("id: \"o1\""));
        assert!(shown("application/x-protobuf", None).unwrap().contains("1: \"o1\"\n2 {\n"));
        assert!(shown("application/x-protobuf", Some("shop.v1.Nothing")).unwrap_err().contains("no schema"));
        let other = shown("application/x-protobuf; messageType=shop.v1.Item", None).unwrap();
        assert!(other.contains("these bytes are no shop.v1.Item") && other.contains("1: \"o1\""), "{other}");
    }

    #[test]
    fn texts_are_compiled_to_a_descriptor_set_with_their_imports() {
        let texts = || vec![("order.proto".to_owned(), PROTO.to_owned()), ("item.proto".to_owned(), ITEM.to_owned())];
        let set = ProtoSchemas::compile_texts(texts()).unwrap();
        let pool = DescriptorPool::decode(&set[..]).unwrap();
        let buy = pool.get_service_by_name("shop.v1.Shop").unwrap().methods().next().unwrap();
        assert_eq!((buy.name(), buy.input().full_name()), ("Buy", "shop.v1.Order"));
        assert!(pool.get_message_by_name("google.protobuf.Timestamp").is_some());
        // An odd quotation mark in a comment, and an import in single ones.
        let mut other = texts();
        other[0].1 = format!("// 5\" wide\n{}", PROTO.replace("\"shop/item.proto\"", "'shop/item.proto'"));
        assert_eq!(ProtoSchemas::compile_texts(other).map(|set| set.is_empty()), Ok(false));
        let missing = ProtoSchemas::compile_texts(texts()[..1].to_vec()).unwrap_err();
        assert!(missing.contains("shop/item.proto"), "{missing}");
        let folder = folder();
        let schemas = ProtoSchemas::load(&[folder.path()]).unwrap();
        let pool = DescriptorPool::decode(&schemas.descriptor_sets()[0][..]).unwrap();
        assert!(pool.get_message_by_name("shop.v1.Item").is_some());
    }

    #[test]
    fn invalid_schema_is_reported_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.proto");
        fs::write(&path, "syntax = \"proto3\";\nmessage A { strng b = 1; }\n").unwrap();
        let error = ProtoSchemas::load(&[&path]).unwrap_err().to_string();
        assert!(error.contains("bad.proto") && error.contains("strng"), "{error}");
        fs::write(folder.path().join("set.bin"), b"\xff").unwrap();
        assert!(
            ProtoSchemas::load(&[folder.path().join("set.bin")])
                .unwrap_err()
                .to_string()
                .contains("invalid descriptor set")
        );
    }
}
