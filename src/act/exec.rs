//! Runs a shell script in a container, with the rights of the user who runs a command.
//!
//! Owns: the transfer of lines to its standard input, and of its output back. Secrets go through standard input, never into
//! a command line, because API servers and nodes log command lines. Must not know: what is run.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// The deadline of a script. If a statement takes longer, for example behind a long transaction, the caller repeats it after it
/// has looked at the cluster again.
const EXEC_DEADLINE: Duration = Duration::from_secs(60);
/// The maximum number of bytes of output that are read.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;

/// The reason why a script did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("running a script in the pod")]
    Start(#[source] kube::Error),
    #[error("the connection to the pod was lost; whether the script ran is unknown")]
    Lost,
    #[error("{0}")]
    Failed(String),
}

/// Runs this script in a container and returns what it prints. `input` is its standard input; the script must not wait for
/// the end of the input, which API servers cannot pass on.
pub async fn shell(
    pods: &Api<Pod>,
    pod: &str,
    container: &str,
    script: &str,
    input: &str,
) -> Result<String, ExecError> {
    let run = async {
        let attached = AttachParams::default().container(container).stdin(true).stdout(true).stderr(true);
        let mut process = pods.exec(pod, ["sh", "-c", script], &attached).await.map_err(ExecError::Start)?;
        let (Some(mut stdin), Some(stdout), Some(stderr), Some(status)) =
            (process.stdin(), process.stdout(), process.stderr(), process.take_status())
        else {
            return Err(ExecError::Lost);
        };
        // The output is read at the same time: a script that cannot write does not read either.
        let write = async {
            let written = stdin.write_all(input.as_bytes()).await;
            written.and(stdin.flush().await)
        };
        let (written, output, errors) = tokio::join!(write, read_text(stdout), read_text(stderr));
        let status = status.await.ok_or(ExecError::Lost)?;
        // Dropping standard input closes the connection, so it stays open until the status has arrived.
        drop(stdin);
        match status.status.as_deref() {
            Some("Success") if written.is_ok() => Ok(output),
            Some("Success") => Err(ExecError::Lost),
            _ => {
                let message = Some(errors.trim().to_owned()).filter(|it| !it.is_empty());
                Err(ExecError::Failed(message.or(status.message).unwrap_or_default()))
            }
        }
    };
    timeout(EXEC_DEADLINE, run).await.unwrap_or(Err(ExecError::Lost))
}

/// Reads text until the connection ends or the limit is reached. A read error also ends the text.
async fn read_text(from: impl AsyncRead + Unpin) -> String {
    let mut bytes = Vec::new();
    let _ = from.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}
