//! A shell in a container, with the rights of the person who runs a command.
//!
//! Owns: the way of lines to its standard input and of its output back. What is secret goes through standard input, never
//! into a command line, which logs of API servers and nodes repeat. Must not know: what is run.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// A statement that waits for longer, as one does behind a long transaction, is asked for again after the next look.
const EXEC_DEADLINE: Duration = Duration::from_secs(60);
/// Bytes of output that are read.
const LONGEST_OUTPUT: u64 = 1 << 20;

/// Why a script did not run to its end.
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
/// its end, which API servers cannot pass on.
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
        // The output is read meanwhile: a script that cannot write does not read either.
        let write = async {
            let written = stdin.write_all(input.as_bytes()).await;
            written.and(stdin.flush().await)
        };
        let (written, said, complaint) = tokio::join!(write, text(stdout), text(stderr));
        let status = status.await.ok_or(ExecError::Lost)?;
        // Its end closes the connection: until then standard input stays open.
        drop(stdin);
        match status.status.as_deref() {
            Some("Success") if written.is_ok() => Ok(said),
            Some("Success") => Err(ExecError::Lost),
            _ => {
                let said = Some(complaint.trim().to_owned()).filter(|it| !it.is_empty());
                Err(ExecError::Failed(said.or(status.message).unwrap_or_default()))
            }
        }
    };
    timeout(EXEC_DEADLINE, run).await.unwrap_or(Err(ExecError::Lost))
}

/// What was read before the connection ended.
async fn text(from: impl AsyncRead + Unpin) -> String {
    let mut bytes = Vec::new();
    let _ = from.take(LONGEST_OUTPUT).read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}
