//! Builds with and without the Cargo features `media`, `compat`, `demo` and `fleet`: each is a recording proxy, and has only the
//! commands and configuration sections of its features.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use interflow_testkit::{Origin, client};

/// Features with their commands and configuration sections.
const FEATURES: [(&str, bool, Option<&str>, Option<&str>); 4] = [
    ("media", cfg!(feature = "media"), Some("media"), Some("media")),
    ("compat", cfg!(feature = "compat"), Some("import mitmproxy"), None),
    ("demo", cfg!(feature = "demo"), Some("demo"), None),
    ("fleet", cfg!(feature = "fleet"), Some("fleet settings"), None),
];

fn interflow(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
    command.args(words).env("INTERFLOW_DATA_DIR", home).env_remove("INTERFLOW_CONFIG").stdin(Stdio::null());
    command
}

fn output(command: &mut Command) -> (Output, String) {
    let output = command.output().unwrap();
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    (output, String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn commands_exist_only_with_their_features() {
    let home = tempfile::tempdir().unwrap();
    for (feature, built, command, _) in FEATURES {
        let Some(command) = command else { continue };
        let (output, text) =
            output(&mut interflow(home.path(), &[command.split(' ').collect::<Vec<_>>(), vec!["--help"]].concat()));
        assert_eq!(output.status.success(), built, "{feature}: {text}");
    }
}

#[test]
fn a_section_of_a_feature_that_is_left_out_is_refused_with_the_name_of_the_feature() {
    let home = tempfile::tempdir().unwrap();
    for (feature, built, _, section) in FEATURES {
        let Some(section) = section else { continue };
        let file = home.path().join("c.toml");
        std::fs::write(&file, format!("[{section}]\n")).unwrap();
        let (output, text) = output(interflow(home.path(), &["config", "check", "-c"]).arg(&file));
        assert_eq!(output.status.success(), built, "{feature}: {text}");
        assert!(built || text.contains(&format!("--features {feature}")), "{feature}: {text}");
    }
}

#[test]
fn keys_of_the_fleet_are_refused_without_it_with_their_names() {
    let home = tempfile::tempdir().unwrap();
    let built = cfg!(feature = "fleet");
    let archive = format!("archive = \"file://{}\"", home.path().join("archive").display());
    for (key, text) in [
        ("record.store", "[record]\nstore = \"postgres://user@127.0.0.1:1/base\"\n"),
        ("record.archive", &format!("[record]\n{archive}\n")),
        ("quota.shared.redis", "[quota.shared]\nredis = \"redis://127.0.0.1:1\"\n"),
        ("llm.cache.store", "[llm.cache]\nstore = \"redis\"\nredis = \"redis://127.0.0.1:1\"\n"),
    ] {
        let file = home.path().join("c.toml");
        std::fs::write(&file, text).unwrap();
        let (checked, text) = output(interflow(home.path(), &["config", "check", "-c"]).arg(&file));
        assert_eq!(checked.status.success(), built, "{key}: {text}");
        assert!(built || text.contains(key) && text.contains("--features fleet"), "{key}: {text}");
    }
}

#[test]
fn rule_files_of_other_programs_need_the_feature_compat() {
    let home = tempfile::tempdir().unwrap();
    let built = cfg!(feature = "compat");
    let file = home.path().join("r.yaml");
    std::fs::write(&file, "rules:\n- filter: {typeKind: any}\n  action: {typeKind: abort}\n").unwrap();
    let (checked, text) = output(interflow(home.path(), &["rules", "check"]).arg(&file));
    assert_eq!(checked.status.success(), built, "{text}");
    assert!(built || text.contains("r.yaml:2:3: ") && text.contains("--features compat"), "{text}");
    let (imported, text) = output(&mut interflow(home.path(), &["import", "mitmproxy", "--set", "anticache=true"]));
    assert_eq!(imported.status.success(), built, "{text}");
}

#[tokio::test]
async fn a_flow_is_proxied_and_recorded_with_any_set_of_features() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin::http().start().await;
    // The command prints its proxy's address and waits for the file.
    let script = "echo $http_proxy > part; mv part proxy; while [ ! -e over ]; do sleep 0.05; done";
    let child = interflow(home.path(), &["exec", "--", "sh", "-c", script]).current_dir(home.path()).spawn().unwrap();
    let proxy = loop {
        if let Ok(text) = std::fs::read_to_string(home.path().join("proxy")) {
            break text.trim().trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let answer = client::get_through(proxy, &origin.url("/bytes/9")).await.unwrap();
    assert_eq!(answer.status, 200);
    std::fs::write(home.path().join("over"), "").unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    let (_, flows) = output(&mut interflow(home.path(), &["flows", "list", "path:/bytes/9", "--format", "jsonl"]));
    assert_eq!(flows.lines().count(), 1, "{flows}");
}
