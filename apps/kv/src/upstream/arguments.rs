//! The options of the cluster in the back.

use super::UpstreamSettings;
use super::map::Named;
use clap::Args;
use laneway_kinds::Failure;

/// A cluster that has the data.
#[derive(Args, Debug)]
pub(crate) struct UpstreamArguments {
    /// Stand in front of a cluster: redis-cluster://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...]
    #[arg(long, value_name = "URL", value_parser = UpstreamSettings::parse)]
    upstream: Option<Named>,
    /// Milliseconds by which a value that is read here may be older than the cluster's
    #[arg(long, value_name = "MS", default_value_t = 1000, requires = "upstream",
        value_parser = clap::value_parser!(u32).range(20..=60_000))]
    upstream_bound_ms: u32,
    /// Milliseconds that an answer of the cluster is waited for, a failover included
    #[arg(long, value_name = "MS", default_value_t = 5000, requires = "upstream",
        value_parser = clap::value_parser!(u32).range(100..=600_000))]
    upstream_timeout_ms: u32,
}

impl UpstreamArguments {
    /// The cluster, if there is one.
    pub(crate) fn check(&self) -> Result<Option<UpstreamSettings>, Failure> {
        let Some((seeds, login)) = self.upstream.clone() else { return Ok(None) };
        let micros = |ms: u32| u64::from(ms) * 1000;
        Ok(Some(UpstreamSettings {
            seeds,
            login,
            bound_us: micros(self.upstream_bound_ms),
            patience_us: micros(self.upstream_timeout_ms),
        }))
    }
}
