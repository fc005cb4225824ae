//! `interflow open`: opens the web UI of the running instance in the browser, with a one-time login link.

use clap::Args;
use interflow_host::data_dir::DataDir;

use crate::Result;
use crate::cli::operations::{InstanceApi, OperationId, Operations as _};

#[derive(Debug, Args)]
pub struct OpenArgs {
    /// Print the URL instead of opening a browser.
    #[arg(long)]
    pub print: bool,
}

/// Opens the browser, or prints the URL if there is none.
pub fn run(args: &OpenArgs, home: &DataDir) -> Result<()> {
    let api = InstanceApi::require(home)?;
    let link = api.call(&OperationId::CreateLoginLink.call())?;
    let path = link["path"].as_str().unwrap_or("/login");
    let url = format!("http://{}{path}", api.address);
    if !args.print && interflow_host::browser::open(&url) {
        interflow_host::errln!("interflow: opening the web UI at http://{}/ in the browser", api.address);
        return Ok(());
    }
    interflow_host::outln!("{url}");
    interflow_host::errln!("interflow: open this URL in a browser within a minute; it works once");
    Ok(())
}
