//! Constants of rule files and of services' environments.

use serde::{Deserialize, Deserializer};

use crate::flow::fixture::FlowFixture;
use crate::text::shape::written_schema;
use crate::text::template::TextTemplate;

/// A constant; its text may contain `${env.NAME}`.
#[derive(Clone, Debug, PartialEq)]
pub struct FileConstant {
    pub text: String,
    /// Whether the text was made from an environment variable.
    pub(crate) reads_env: bool,
}

impl<'de> Deserialize<'de> for FileConstant {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let template = TextTemplate::deserialize(d)?;
        let constants = Vec::new();
        let sample = FlowFixture::for_get("http://constant.invalid/");
        let text = template.render_view(&sample.view(interflow_types::Phase::Authority, &constants)).into_owned();
        Ok(Self { text, reads_env: template.reads_env() })
    }
}

written_schema!(FileConstant, "Constant", |g| TextTemplate::json_schema(g));
