//! The environment variables of OpenTelemetry and of the clouds' SDKs that the gateway reads.

/// A variable and what it is for.
pub type Variable = (&'static str, &'static str);

/// OpenTelemetry's, which are defaults for `[telemetry]`.
pub const OTEL_VARIABLES: &[Variable] = &[
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "the collector's URL for traces, as it is"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "the collector's URL, to which `/v1/traces` is appended"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "header fields for the collector: `name=value,…`"),
    ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "the same, for traces"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "`grpc` is not supported and causes a warning"),
    ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "the same, for traces"),
    ("OTEL_RESOURCE_ATTRIBUTES", "attributes of the resource: `name=value,…`"),
    ("OTEL_SERVICE_NAME", "the resource's `service.name`"),
    (
        "OTEL_TRACES_SAMPLER",
        "which traces are exported: `always_on`, `always_off` or `traceidratio`, each also with `parentbased_`",
    ),
    ("OTEL_TRACES_SAMPLER_ARG", "the fraction for `traceidratio`"),
    ("OTEL_TRACES_EXPORTER", "`none`: no export"),
    ("OTEL_SDK_DISABLED", "`true`: no export"),
];

/// The clouds', for providers with `credentials = "ambient"` or `profile`.
pub const CLOUD_VARIABLES: &[Variable] = &[
    ("AWS_ACCESS_KEY_ID", "AWS: access key"),
    ("AWS_SECRET_ACCESS_KEY", "AWS: its secret"),
    ("AWS_SESSION_TOKEN", "AWS: session token"),
    ("AWS_PROFILE", "AWS: profile in the files"),
    ("AWS_SHARED_CREDENTIALS_FILE", "AWS: credentials file, in place of `~/.aws/credentials`"),
    ("AWS_CONFIG_FILE", "AWS: configuration file, in place of `~/.aws/config`"),
    ("AWS_REGION", "AWS: region of the token service; else `AWS_DEFAULT_REGION`"),
    ("AWS_DEFAULT_REGION", "AWS: see `AWS_REGION`"),
    ("AWS_ENDPOINT_URL_STS", "AWS: URL of the token service; else `AWS_ENDPOINT_URL`"),
    ("AWS_ENDPOINT_URL", "AWS: see `AWS_ENDPOINT_URL_STS`"),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS: web identity token, in Kubernetes"),
    ("AWS_ROLE_ARN", "AWS: role to assume with it"),
    ("AWS_ROLE_SESSION_NAME", "AWS: name of that session"),
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS: path of the container's credentials"),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS: URL of the container's credentials"),
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS: file with the token for that URL"),
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS: token for that URL"),
    ("AWS_EC2_METADATA_DISABLED", "AWS: `true`: the machine's metadata service is not asked"),
    ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS: URL of the metadata service"),
    ("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "AWS: `IPv6`: the metadata service is asked over IPv6"),
    ("AZURE_CLIENT_ID", "Azure: client id of an application or managed identity"),
    ("AZURE_TENANT_ID", "Azure: tenant"),
    ("AZURE_CLIENT_SECRET", "Azure: secret of the application"),
    ("AZURE_FEDERATED_TOKEN_FILE", "Azure: federated token, in Kubernetes"),
    ("AZURE_AUTHORITY_HOST", "Azure: URL of the token service"),
    ("AZURE_POD_IDENTITY_AUTHORITY_HOST", "Azure: URL of the metadata service"),
    ("IDENTITY_ENDPOINT", "Azure: URL of the identity of an app service"),
    ("IDENTITY_HEADER", "Azure: its secret"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "Google: credentials file"),
    ("CLOUDSDK_CONFIG", "Google: folder of gcloud's configuration"),
    ("GCE_METADATA_HOST", "Google: host of the metadata service"),
    ("HOME", "home directory, for the files of the clouds"),
    ("USERPROFILE", "home directory on Windows"),
];

/// Whether the variable is in one of the tables.
pub(crate) fn is_listed(name: &str) -> bool {
    OTEL_VARIABLES.iter().chain(CLOUD_VARIABLES).any(|(listed, _)| *listed == name)
}
