//! Exec plugins of a kubeconfig. They run without a terminal, and their output is never shown, because it may be a secret.
//!
//! kube's errors contain a plugin's output and its whole command line. [`Plugin`] replaces them with a [`PluginError`].

use std::{io, path::Path, process::ExitStatus};

use kube::{
    Config,
    client::{AuthError, RustlsTlsError},
    config::ExecInteractiveMode,
};
use tower::BoxError;

/// Why a plugin returned no credentials.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// It could not be started.
    #[error("the exec plugin {name} of the kubeconfig cannot be started: {source}")]
    Start {
        /// The plugin.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// It ended with an error.
    #[error("the exec plugin {name} of the kubeconfig failed ({status}); run it by hand to see why")]
    Failed {
        /// The plugin.
        name: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// It printed no usable credentials.
    #[error("the exec plugin {name} of the kubeconfig printed no usable credentials; run it by hand to see why")]
    Unusable {
        /// The plugin.
        name: String,
    },
}

/// The plugin of a kubeconfig.
#[derive(Clone, Debug)]
pub struct Plugin {
    name: String,
}

impl Plugin {
    /// The plugin of a configuration. This also makes it run without a terminal, because otherwise kube does not capture its standard
    /// error, which would then reach the log.
    pub fn from_config(config: &mut Config) -> Option<Self> {
        let auth = &mut config.auth_info;
        if let Some(exec) = &mut auth.exec {
            exec.interactive_mode = Some(ExecInteractiveMode::Never);
        }
        let command = match (&auth.auth_provider, &auth.exec) {
            (Some(provider), _) => provider.config.get("cmd-path")?,
            (None, exec) => exec.as_ref()?.command.as_ref()?,
        };
        let file = Path::new(command).file_name().map(|name| name.to_string_lossy().into_owned());
        Some(Plugin { name: file.unwrap_or_else(|| command.clone()) })
    }

    /// The error of making a client, without the plugin's output.
    ///
    /// # Errors
    ///
    /// A [`PluginError`] if the plugin caused the error.
    pub fn redact_config_error(&self, error: kube::Error) -> Result<kube::Error, PluginError> {
        match error {
            kube::Error::Auth(error) => self.redact_auth_error(error).map(kube::Error::Auth),
            // The certificate and key may come from the plugin, and the error may show a line of them.
            kube::Error::RustlsTls(RustlsTlsError::InvalidIdentityPem(_) | RustlsTlsError::InvalidPrivateKey(_)) => {
                Err(self.unusable())
            }
            error => Ok(error),
        }
    }

    /// The error of a request, without the plugin's output.
    pub fn redact_request_error(&self, error: BoxError) -> BoxError {
        match error.downcast::<AuthError>() {
            Ok(error) => self.redact_auth_error(*error).map_or_else(Into::into, Into::into),
            Err(error) => error,
        }
    }

    fn redact_auth_error(&self, error: AuthError) -> Result<AuthError, PluginError> {
        let name = self.name.clone();
        Err(match error {
            AuthError::AuthExecStart(source) => PluginError::Start { name, source },
            AuthError::AuthExecRun { status, .. } => PluginError::Failed { name, status },
            // These do not contain the output.
            error @ (AuthError::MissingCommand | AuthError::ExecMissingClusterInfo | AuthError::ReadTokenFile(..)) => {
                return Ok(error);
            }
            _ => self.unusable(),
        })
    }

    fn unusable(&self) -> PluginError {
        PluginError::Unusable { name: self.name.clone() }
    }
}
