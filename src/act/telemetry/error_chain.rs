//! An error and its causes as one line for a log or a terminal.
//!
//! Must not know: what failed, or where the line is printed.

use std::error::Error;
use std::io;

use kube::client::AuthError;
use kube::runtime::watcher;
use rustls::CertificateError;

/// Returns an error and its sources as `a: b: c`, each once: some libraries repeat their source in their own text.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let (own_text, ends) = text_and_end(error);
        if text.is_empty() {
            text = own_text;
        } else if !own_text.is_empty() && !text.ends_with(&own_text) {
            text = format!("{text}: {own_text}");
        }
        next = if ends { None } else { error.source() };
    }
    text
}

/// Error texts that only name a layer of the HTTP client.
const LAYERS: [&str; 3] = ["client error (Connect)", "client error (SendRequest)", "tcp connect error"];

/// Returns the text of one error of a chain, in terms that an operator knows, and whether the chain ends here: the sources of
/// some errors add nothing, or more than may be printed.
fn text_and_end(error: &(dyn Error + 'static)) -> (String, bool) {
    let last = |text: &str| (text.to_owned(), true);
    match error.downcast_ref::<kube::Error>() {
        // The API server's answer contains a sentence; kube prints all other fields around it.
        Some(kube::Error::Api(status)) if !status.message.is_empty() => return last(&status.message),
        Some(kube::Error::Service(_)) => return ("the API server does not answer".to_owned(), false),
        _ => {}
    }
    // kube's watcher prints all fields of its cause in its own text.
    match error.downcast_ref::<watcher::Error>() {
        Some(watcher::Error::WatchError(status)) => return last(&status.message),
        Some(_) if error.source().is_some() => return (String::new(), false),
        _ => {}
    }
    // The error of a plugin that failed quotes its environment, and everything that it printed.
    if matches!(error.downcast_ref(), Some(kube::Error::Auth(_))) || error.is::<AuthError>() {
        return last(
            "the credentials that the kubeconfig names could not be obtained (exec plugin, auth provider or token file)",
        );
    }
    if let Some(text) = certificate_problem(error) {
        return last(text);
    }
    let text = error.to_string();
    let text =
        if LAYERS.contains(&&*text) { "" } else { text.split(" (os error ").next().unwrap_or_default() };
    (text.to_owned(), false)
}

/// Returns what is wrong with the certificate of a server, if this error is about that.
fn certificate_problem(error: &(dyn Error + 'static)) -> Option<&'static str> {
    // rustls wraps its errors in an io::Error.
    let inner = error.downcast_ref::<io::Error>()?.get_ref()?;
    let rustls::Error::InvalidCertificate(problem) = inner.downcast_ref()? else { return None };
    Some(match problem {
        CertificateError::UnknownIssuer => {
            "its certificate was not issued by the certificate authority of the kubeconfig"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name"
        }
        _ => return None,
    })
}
