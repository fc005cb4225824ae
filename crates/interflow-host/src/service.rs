//! Interflow as a service of one user: a unit of systemd's user manager, or an agent of launchd.

use std::fs;
use std::path::{Path, PathBuf};

use interflow_files::{FileAccess, write_atomic};

use crate::system_proxy::SystemCommands;

/// What each file of ours contains, and no file of a person's.
const MARK: &str = "Written by `interflow service install`";

/// A program that starts services. `FILE` in its commands is the file of the service, `USER` the number of the user.
#[derive(Debug)]
struct ServiceManager {
    program: &'static str,
    /// Below the home directory.
    file: &'static str,
    /// With `COMMAND` in the place of the command line.
    template: &'static str,
    word: fn(&str) -> String,
    /// The words of the command in a file.
    words: fn(&str) -> Vec<String>,
    start: &'static [&'static str],
    stop: &'static str,
    is_active: &'static str,
}

const SYSTEMD: ServiceManager = ServiceManager {
    program: "systemctl",
    file: ".config/systemd/user/interflow.service",
    template: include_str!("../data/service/interflow.service"),
    word: unit_word,
    words: unit_words,
    start: &["systemctl --user daemon-reload", "systemctl --user enable --now interflow"],
    stop: "systemctl --user disable --now interflow",
    is_active: "systemctl --user is-active interflow",
};

const LAUNCHD: ServiceManager = ServiceManager {
    program: "launchctl",
    file: "Library/LaunchAgents/interflow.plist",
    template: include_str!("../data/service/interflow.plist"),
    word: xml_word,
    words: xml_words,
    start: &["launchctl bootstrap gui/USER FILE"],
    stop: "launchctl bootout gui/USER/interflow",
    is_active: "launchctl print gui/USER/interflow",
};

/// The service of this user, installed or not.
#[derive(Debug)]
pub struct UserService {
    manager: ServiceManager,
    /// The file that the service manager reads.
    pub file: PathBuf,
}

impl UserService {
    /// # Errors
    /// This machine has neither systemd nor launchd, or there is no home directory.
    pub fn find() -> Result<Self, String> {
        let manager = [SYSTEMD, LAUNCHD].into_iter().find(|manager| SystemCommands::default().has(manager.program));
        let manager = manager.ok_or(
            "services are installed with systemd (systemctl) or launchd (launchctl), and neither is here: have this \
             machine's service manager start `interflow run`",
        )?;
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
        let home = home.ok_or("there is no home directory: HOME is not set")?;
        Ok(Self { file: Path::new(&home).join(manager.file), manager })
    }

    pub fn is_installed(&self) -> bool {
        self.command().is_some()
    }

    /// The words of the installed command; `None` if the service is not installed.
    pub fn command(&self) -> Option<Vec<String>> {
        let text = fs::read_to_string(&self.file).ok().filter(|text| text.contains(MARK))?;
        Some((self.manager.words)(&text))
    }

    /// Whether the service manager says that it runs.
    pub fn is_active(&self) -> bool {
        self.run(self.manager.is_active).is_ok()
    }

    /// Writes the file and starts the service, now and at each login. An earlier one of ours is replaced.
    ///
    /// # Errors
    /// There is a file of another origin, it cannot be written, or the service manager refuses it.
    pub fn install(&self, command: &[String]) -> Result<(), String> {
        let shown = self.file.display();
        if self.is_installed() {
            // It may not run.
            let _ = self.run(self.manager.stop);
        } else if self.file.exists() {
            return Err(format!("{shown} was not written by Interflow: remove it first"));
        }
        let mut words: Vec<_> = command.iter().map(|word| (self.manager.word)(word)).collect();
        // systemd replaces variables in arguments only, not in the path of the program.
        if let Some(program) = words.first_mut().filter(|_| self.manager.program == "systemctl") {
            *program = program.replace("$$", "$");
        }
        let text = self.manager.template.replace("COMMAND", words.join(" ").trim_end());
        let folder = self.file.parent().unwrap_or(&self.file);
        fs::create_dir_all(folder)
            .and_then(|()| write_atomic(&self.file, text.as_bytes(), FileAccess::Private))
            .map_err(|e| format!("{shown} cannot be written: {e}"))?;
        let started = self.manager.start.iter().try_for_each(|step| self.run(step));
        started.inspect_err(|_| drop(fs::remove_file(&self.file)))
    }

    /// Stops the service and removes its file.
    ///
    /// # Errors
    /// It is not installed, cannot be stopped, or its file cannot be removed.
    pub fn uninstall(&self) -> Result<(), String> {
        let shown = self.file.display();
        if !self.is_installed() {
            return Err(format!("the service is not installed: {shown} is not there, or was not written by Interflow"));
        }
        self.run(self.manager.stop)?;
        fs::remove_file(&self.file).map_err(|e| format!("{shown} cannot be removed: {e}"))
    }

    fn run(&self, command: &str) -> Result<(), String> {
        #[cfg(unix)]
        let command = &command.replace("USER", &rustix::process::geteuid().as_raw().to_string());
        let file = self.file.to_string_lossy();
        let words: Vec<&str> = command.split(' ').map(|word| if word == "FILE" { &*file } else { word }).collect();
        SystemCommands::default().run(&words)
    }
}

/// A word of a command line as systemd.service(5) reads it.
fn unit_word(word: &str) -> String {
    let quoted = word.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    format!("\"{}\"", quoted.replace('%', "%%").replace('$', "$$"))
}

fn unit_words(text: &str) -> Vec<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=\"")?.strip_suffix('"')).unwrap_or_default();
    let plain = |word: &str| {
        let word = word.replace(r"\\", "\0").replace(r"\n", "\n").replace("\\\"", "\"").replace('\0', r"\");
        word.replace("%%", "%").replace("$$", "$")
    };
    // A quote within a word has a backslash before it.
    line.split("\" \"").map(plain).collect()
}

fn xml_words(text: &str) -> Vec<String> {
    let list = text.split_once("<array>").and_then(|(_, rest)| rest.split("</array>").next()).unwrap_or_default();
    let words = list.split("<string>").skip(1).filter_map(|rest| rest.split("</string>").next());
    words.map(|word| word.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")).collect()
}

fn xml_word(word: &str) -> String {
    format!("<string>{}</string>", word.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_command_are_quoted_for_the_service_manager() {
        let word = "/a%b$c\"d\\<&>";
        assert_eq!((SYSTEMD.word)(word), r#""/a%%b$$c\"d\\<&>""#);
        assert_eq!((LAUNCHD.word)(word), r#"<string>/a%b$c"d\&lt;&amp;&gt;</string>"#);
        for manager in [SYSTEMD, LAUNCHD] {
            assert!(manager.template.contains(MARK) && manager.template.contains("COMMAND"), "{}", manager.program);
            let command = [word, "--data-dir", "/a b\n", ""];
            let words: Vec<_> = command.iter().map(|word| (manager.word)(word)).collect();
            let text = manager.template.replace("COMMAND", &words.join(" "));
            assert_eq!((manager.words)(&text), command, "{}", manager.program);
        }
    }
}
