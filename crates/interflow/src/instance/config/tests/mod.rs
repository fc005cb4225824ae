//! What is generated from the configuration, and its listeners.

mod reference;
mod template;

#[cfg(feature = "media")]
use super::InterflowConfig;

#[cfg(feature = "media")]
#[test]
fn compat_port_can_be_changed_and_disabled() {
    for (port, ports) in [(None, vec![7071, 8888]), (Some(9999), vec![7071, 9999]), (Some(0), vec![7071])] {
        let mut config = InterflowConfig::default();
        config.gateway.listen = vec!["127.0.0.1:7071".parse().unwrap()];
        config.media.compat.enabled = true;
        config.media.compat.port = port.unwrap_or(config.media.compat.port);
        let found: Vec<u16> = config.engine().gateway.listen.iter().map(|a| a.port()).collect();
        assert_eq!(found, ports);
    }
}
