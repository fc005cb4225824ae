//! The hosts that the examples talk to, without a network: those of `interflow run --origins`.

use interflow_demo::origins::Origins;

pub struct Internet {
    origins: Origins,
    _folder: tempfile::TempDir,
}

impl Internet {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { origins: Origins::start(folder.path()).await.unwrap(), _folder: folder }
    }

    /// Environment variables that make an instance reach these hosts.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        let proxy = format!("[{{ hosts = {:?}, via = [{:?}] }}]", Origins::hosts(), self.origins.proxy_url());
        [
            ("INTERFLOW_UPSTREAM_EXTRA_CA", format!("[{:?}]", self.origins.ca().display().to_string())),
            ("INTERFLOW_UPSTREAM_PROXY", proxy),
        ]
    }
}
