//! The Interflow binary.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    interflow_cli::main()
}
