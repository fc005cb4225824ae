//! The editor against a file, without an instance.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use interflow_admin::settings::{SettingEffect, SettingsDiffKind};
use interflow_admin::{ActiveConfig, ReloadReport};
use parking_lot::Mutex;

use super::*;
use crate::instance::config::ConfigFile;

struct Rig {
    _dir: tempfile::TempDir,
    path: PathBuf,
    editor: ConfigEditor,
    refuses: Arc<AtomicBool>,
    audited: Arc<Mutex<Vec<(String, Json)>>>,
}

fn rig(text: Option<&str>, options: Vec<(&'static str, &'static str)>) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("interflow.toml");
    if let Some(text) = text {
        fs::write(&path, text).unwrap();
    }
    let (refuses, audited) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<_>>>::default());
    let (refusing, log) = (Arc::clone(&refuses), Arc::clone(&audited));
    let editor = ConfigEditor::new(EditorDeps {
        control: ConfigControl {
            file: ConfigFile::find(Some(&path), None),
            active: ActiveConfig::default(),
            flags: Arc::new(|_| ()),
            options,
            reload: Arc::new(move || {
                let refused = refusing.load(Relaxed);
                Box::pin(async move { if refused { Err("no disk".into()) } else { Ok(ReloadReport::default()) } })
            }),
        },
        reloadable: ReloadableKeys { has_store: true },
        check: Arc::new(|config| interflow_proxy::check(&config.engine()).map_err(|e| e.to_string())),
        audit: Arc::new(move |client, changes| log.lock().push((client.to_owned(), changes.clone()))),
    });
    Rig { _dir: dir, path, editor: editor.unwrap(), refuses, audited }
}

fn change(key: &str, value: Json) -> Vec<SettingChange> {
    vec![SettingChange { key: key.into(), value }]
}

impl Rig {
    fn text(&self) -> String {
        fs::read_to_string(&self.path).unwrap_or_default()
    }

    fn setting(&self, key: &str) -> Setting {
        self.editor.view().unwrap().settings.into_iter().find(|s| s.key == key).unwrap()
    }

    /// As the API does, on a blocking thread.
    async fn apply_to(&self, base: String, changes: Vec<SettingChange>) -> Result<AppliedSettings, SettingsError> {
        let editor = self.editor.clone();
        let apply = move || editor.apply(&EditTurn::unlimited(), &base, &changes, "127.0.0.1");
        tokio::task::spawn_blocking(apply).await.unwrap()
    }

    async fn apply(&self, changes: Vec<SettingChange>) -> Result<AppliedSettings, SettingsError> {
        let base = self.editor.preview(&changes)?.base;
        self.apply_to(base, changes).await
    }
}

#[tokio::test]
async fn a_change_is_previewed_written_and_audited() {
    let text = "# ours\n[intercept]\nmode = \"none\" # for now\n";
    let rig = rig(Some(text), Vec::new());
    assert_eq!(rig.setting("intercept.mode").source, SettingSource::File { line: 3 });
    assert_eq!(rig.setting("record.enabled").source, SettingSource::Default);
    let changes = change("intercept.mode", json!("all"));
    let preview = rig.editor.preview(&changes).unwrap();
    assert_eq!(rig.text(), text, "a preview changes nothing");
    let added: Vec<_> = preview.diff.iter().filter(|l| l.kind == SettingsDiffKind::Added).collect();
    assert_eq!((added.len(), added[0].text.as_str()), (1, "mode = \"all\" # for now"));
    let expected = ChangedSetting {
        key: "intercept.mode".into(),
        before: json!("none"),
        after: json!("all"),
        effect: SettingEffect::Now,
    };
    assert_eq!(preview.changes, [expected]);
    rig.apply(changes).await.unwrap();
    assert_eq!(rig.text(), text.replace("none", "all"));
    let audited = [("127.0.0.1".to_owned(), json!([{"key": "intercept.mode", "before": "none", "after": "all"}]))];
    assert_eq!(*rig.audited.lock(), audited);
}

#[tokio::test]
async fn a_first_change_creates_the_file() {
    let rig = rig(None, Vec::new());
    assert!(!rig.editor.view().unwrap().exists);
    rig.apply(change("record.retention_age", json!("7d"))).await.unwrap();
    assert_eq!(rig.text(), "[record]\nretention_age = \"7d\"\n");
    rig.apply(change("record.retention_age", Json::Null)).await.unwrap();
    assert_eq!(rig.setting("record.retention_age").value, json!("30d"));
}

#[tokio::test]
async fn a_file_that_was_changed_meanwhile_is_not_overwritten() {
    let rig = rig(Some("[record]\nbodies = true\n"), Vec::new());
    let changes = change("record.bodies", json!(false));
    let base = rig.editor.preview(&changes).unwrap().base;
    fs::write(&rig.path, "# by hand\n").unwrap();
    let error = rig.apply_to(base, changes).await.unwrap_err();
    assert!(matches!(error, SettingsError::ChangedMeanwhile(_)), "{error:?}");
    assert_eq!(rig.text(), "# by hand\n");
}

#[tokio::test]
async fn a_refused_reload_restores_the_file() {
    for before in [Some("[record]\nbodies = true # yes\n"), None] {
        let rig = rig(before, Vec::new());
        rig.refuses.store(true, Relaxed);
        let error = rig.apply(change("record.bodies", json!(false))).await.unwrap_err();
        assert_eq!(error, SettingsError::Invalid("no disk; the file is as it was".into()));
        assert_eq!(fs::read_to_string(&rig.path).ok().as_deref(), before);
        assert!(rig.audited.lock().is_empty());
    }
}

#[test]
fn invalid_values_are_refused_with_their_place() {
    let rig = rig(Some("[intercept]\nexclude = []\n"), Vec::new());
    let refused = |key: &str, value: Json| rig.editor.preview(&change(key, value)).unwrap_err();
    for (key, value, says) in [
        ("intercept.mode", json!("al"), "3:8: unknown value `al`: did you mean `all`?"),
        ("record.retention_age", json!("soon"), "`soon` is not a duration"),
        ("intercept.pinning_failures", json!("many"), "3:20: it is a text, but"),
        ("upstream.no_proxy", json!(["a b"]), "upstream.no_proxy"),
    ] {
        let error = refused(key, value);
        assert!(matches!(&error, SettingsError::Invalid(why) if why.contains(says)), "{key}: {error:?}");
    }
    assert!(matches!(refused("admin.listen", json!("0.0.0.0:1")), SettingsError::Unusable(_)));
    assert!(matches!(refused("intercept.exclude", json!([])), SettingsError::Unusable(_)), "nothing changes");
}

#[test]
fn options_and_managed_files_lock_settings() {
    let rig = rig(Some("[admin]\nsettings = \"read-only\"\n"), vec![("record.enabled", "--no-record")]);
    assert_eq!(rig.setting("record.enabled").source, SettingSource::Option { name: "--no-record".into() });
    assert!(rig.setting("record.enabled").locked.unwrap().contains("--no-record"));
    assert!(rig.setting("record.bodies").locked.is_none());
    assert!(rig.editor.view().unwrap().locked.unwrap().contains("admin.settings"));
    let error = rig.editor.preview(&change("record.bodies", json!(false))).unwrap_err();
    assert!(matches!(error, SettingsError::Managed(_)), "{error:?}");
    fs::write(&rig.path, "").unwrap();
    let error = rig.editor.preview(&change("record.enabled", json!(false))).unwrap_err();
    assert!(matches!(&error, SettingsError::Overridden(why) if why.contains("--no-record")), "{error:?}");
    fs::write(&rig.path, "x = = 1").unwrap();
    assert!(matches!(rig.editor.view(), Err(SettingsError::Invalid(_))));
}

#[tokio::test]
async fn credentials_stay_masked_and_survive_a_change_of_the_rest() {
    let text = "[[upstream.proxy]]\nhosts = ['*.corp']\nvia = ['http://ann:s3cret@proxy.test:3128']\n";
    let rig = rig(Some(text), Vec::new());
    let shown = rig.setting("upstream.proxy").value;
    assert_eq!(shown, json!([{"hosts": ["*.corp"], "via": ["http://***@proxy.test:3128"]}]));
    let changes = change("upstream.proxy", json!([{"hosts": ["*"], "via": ["http://***@proxy.test:3128"]}]));
    let preview = serde_json::to_string(&rig.editor.preview(&changes).unwrap()).unwrap();
    assert!(!preview.contains("s3cret"), "{preview}");
    rig.apply(changes).await.unwrap();
    assert_eq!(rig.text(), text.replace("'*.corp'", "\"*\""));
    assert!(!format!("{:?}", rig.audited.lock()).contains("s3cret"));
    let elsewhere = change("upstream.proxy", json!([{"hosts": ["*"], "via": ["http://***@evil.test:3128"]}]));
    let refused = rig.editor.preview(&elsewhere);
    assert!(matches!(&refused, Err(SettingsError::Invalid(why)) if why.contains("`***` stands for")), "{refused:?}");
}

#[tokio::test]
async fn credentials_that_are_shown_the_same_stay_with_their_entries() {
    let entry =
        |host: &str, user: &str| format!("[[upstream.proxy]]\nhosts = ['{host}']\nvia = ['http://{user}@p.test:1']\n");
    let text = entry("a.test", "us:1") + &entry("b.test", "de:2");
    let rig = rig(Some(&text), Vec::new());
    let mut shown = rig.setting("upstream.proxy").value;
    assert_eq!(shown[0]["via"], shown[1]["via"]);
    shown[1]["hosts"] = json!(["c.test"]);
    rig.apply(change("upstream.proxy", shown.clone())).await.unwrap();
    assert_eq!(rig.text(), text.replace("'b.test'", "\"c.test\""));
    for changed in [json!([shown[1]]), json!([shown[0], shown[1], shown[1]])] {
        let refused = rig.editor.preview(&change("upstream.proxy", changed));
        assert!(matches!(refused, Err(SettingsError::Unusable(_))), "{refused:?}");
    }
}
