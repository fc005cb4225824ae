//! The address of a shared store, as it is shown.

/// A URL without its password, wherever that is.
pub fn masked_url(url: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
    let mut out = match (base.split_once("://"), base.rfind('@')) {
        (Some((scheme, _)), Some(at)) => {
            let user = &base[scheme.len() + 3..at.max(scheme.len() + 3)];
            let masked_user = match user.split_once(':') {
                Some((name, _)) => format!("{name}:***"),
                None => user.to_owned(),
            };
            format!("{scheme}://{masked_user}{}", &base[at..])
        }
        _ => base.to_owned(),
    };
    if let Some(query) = query {
        let pairs = query.split('&').map(|p| if p.starts_with("password=") { "password=***" } else { p });
        out.push('?');
        out.push_str(&pairs.collect::<Vec<_>>().join("&"));
    }
    out
}
