//! Secrets in the configuration, given by reference.

/// Resolves a value that may be a reference, `env:NAME` or `file:PATH`; other text stands for itself.
///
/// # Errors
/// The variable or file does not exist. The message names it, not its content.
pub fn resolve_secret_ref(text: &str) -> Result<String, String> {
    if let Some(name) = text.strip_prefix("env:") {
        return std::env::var(name).map_err(|_| format!("the environment variable {name} is not set"));
    }
    if let Some(path) = text.strip_prefix("file:") {
        let read = std::fs::read_to_string(path).map_err(|e| format!("{path} cannot be read: {e}"))?;
        // An editor adds a line end, which is not part of the secret.
        return Ok(read.trim().to_owned());
    }
    Ok(text.to_owned())
}

/// Checks a secret that is sent in a header field, and returns it.
///
/// # Errors
/// It is empty, or holds a control character, such as a line break within it.
pub fn check_field_secret(secret: String) -> Result<String, String> {
    if secret.is_empty() || secret.bytes().any(|b| b.is_ascii_control()) {
        return Err("it is empty or holds a line break or another control character".to_owned());
    }
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_and_what_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "s3cret\n").unwrap();
        assert_eq!(resolve_secret_ref(&format!("file:{}", file.display())).as_deref(), Ok("s3cret"));
        assert_eq!(resolve_secret_ref("plain").as_deref(), Ok("plain"));
        assert_eq!(check_field_secret("s3cret".into()).as_deref(), Ok("s3cret"));
        assert!(["", "a\nb", "a\0"].iter().all(|secret| check_field_secret((*secret).into()).is_err()));
        let missing = resolve_secret_ref("env:INTERFLOW_NO_SUCH_VARIABLE").unwrap_err();
        assert!(missing.contains("INTERFLOW_NO_SUCH_VARIABLE"), "{missing}");
        let missing = resolve_secret_ref(&format!("file:{}", dir.path().join("none").display())).unwrap_err();
        assert!(missing.contains("none cannot be read"), "{missing}");
    }
}
