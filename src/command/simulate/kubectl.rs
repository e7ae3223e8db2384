//! A kubectl command as a dry run of the API server.
//!
//! Owns: which commands know one, and what stands in the way of being overheard. Must not know: what they write. It only helps
//! people: what is no dry run does not pass the relay, whatever stands here.

use anyhow::{bail, ensure};

/// The verbs that know `--dry-run=server`; those of two words with the second.
const VERBS: [(&str, &[&str]); 17] = [
    ("annotate", &[]),
    ("apply", &[]),
    ("autoscale", &[]),
    ("cordon", &[]),
    ("create", &[]),
    ("delete", &[]),
    ("drain", &[]),
    ("expose", &[]),
    ("label", &[]),
    ("patch", &[]),
    ("replace", &[]),
    ("rollout", &["undo"]),
    ("run", &[]),
    ("scale", &[]),
    ("set", &[]),
    ("taint", &[]),
    ("uncordon", &[]),
];
/// Options of every kubectl command with a value that may stand apart from them.
const WITH_VALUE: [&str; 15] = [
    "--as",
    "--as-group",
    "--as-uid",
    "--as-user-extra",
    "--cache-dir",
    "--kuberc",
    "--log-flush-frequency",
    "--namespace",
    "--profile",
    "--profile-output",
    "--request-timeout",
    "--v",
    "--vmodule",
    "-n",
    "-v",
];
/// Options that lead elsewhere, or make it somebody else by other means than `--as`.
const ELSEWHERE: [&str; 13] = [
    "--certificate-authority",
    "--client-certificate",
    "--client-key",
    "--cluster",
    "--context",
    "--insecure-skip-tls-verify",
    "--kubeconfig",
    "--password",
    "--server",
    "--tls-server-name",
    "--token",
    "--user",
    "--username",
];
/// Verbs for which `--user` names a subject.
const OF_SUBJECTS: [&str; 2] = ["create", "set"];
/// kubectl asks again every five seconds for what may not be evicted now.
const DRAINS_FOR: &str = "--timeout=10s";

/// Options of the API server's, for somebody else's rights.
const AS: &str = "--as";

/// What is run instead of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Steps {
    /// Prints what the other reads.
    pub(super) prints: Option<Vec<String>>,
    /// A dry run of the API server.
    pub(super) runs: Vec<String>,
}

/// The command with what makes it one; in words, why it cannot be.
pub(super) fn as_dry_run(command: &[String]) -> anyhow::Result<Steps> {
    let program = command.first().map_or("", |it| it.rsplit('/').next().unwrap_or_default());
    ensure!(
        program.starts_with("kubectl"),
        "{program:?} is not kubectl; write: gatera simulate -- kubectl delete pod galera-0, or gatera simulate -f FILE"
    );
    // What follows is for a container, and no option of kubectl's.
    let end = command.iter().position(|it| it == "--").unwrap_or(command.len());
    let Some(at) = next(&command[..end], 1) else {
        bail!("there is no kubectl command in that; write: gatera simulate -- kubectl delete pod galera-0")
    };
    let verb = &*command[at];
    for word in &command[..end] {
        let name = word.split_once('=').map_or(&**word, |(name, _)| name);
        let name = if name.starts_with("-s") { "-s" } else { name };
        let of_a_subject = name == "--user" && OF_SUBJECTS.contains(&verb);
        ensure!(
            name != "-s" && !ELSEWHERE.contains(&name) || of_a_subject,
            "{name} would lead elsewhere: gatera itself takes --context and --kubeconfig, before the --"
        );
        ensure!(
            name != "--dry-run" || word == "--dry-run=server",
            "{word} does not ask the API server; leave it out, it becomes --dry-run=server"
        );
        ensure!(
            name != "--disable-eviction",
            "what {name} sends is not read here, so it is not simulated; kubectl delete pod is"
        );
    }
    let second = next(&command[..end], at + 1).map_or("", |it| &*command[it]);
    let known = VERBS.iter().find(|(known, _)| *known == verb).map(|(_, seconds)| *seconds);
    let token = (verb, second) == ("create", "token");
    if token || !known.is_some_and(|all| all.is_empty() || all.contains(&second)) {
        let words = if known.is_some() { format!("{verb} {second}") } else { verb.to_owned() };
        bail!(
            "kubectl {words} knows no dry run of the API server, so it is not simulated; these do: {}",
            listed()
        )
    }
    let asks =
        |option: &str| command[..end].iter().any(|it| it == option || it.starts_with(&format!("{option}=")));
    let mut all = command.to_vec();
    let files = ["-f", "-k", "--filename", "--kustomize", "--raw"];
    let reads = command[..end].iter().any(|word| files.iter().any(|it| word.starts_with(it)));
    if (verb == "create" && !reads) || verb == "autoscale" {
        // These send what they make in a form that only API servers read; what they print can be read here as well.
        all.retain(|word| word != "--dry-run=server");
        // Of two the last counts.
        let printing = ["--dry-run=client", "--output=json"].map(str::to_owned);
        let end = all.iter().position(|it| it == "--").unwrap_or(all.len());
        all = [&all[..end], &printing, &all[end..]].concat();
        let mut runs = vec![command[0].clone()];
        runs.extend(["create", "--dry-run=server", "--filename=-"].map(str::to_owned));
        runs.extend(impersonating(&command[..end]));
        return Ok(Steps { prints: Some(all), runs });
    }
    if verb == "drain" && !asks("--timeout") {
        all.insert(at + 1, DRAINS_FOR.to_owned());
    }
    if !asks("--dry-run") {
        all.insert(at + 1, "--dry-run=server".to_owned());
    }
    Ok(Steps { prints: None, runs: all })
}

/// The options that say as whom.
fn impersonating(command: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut words = command.iter();
    while let Some(word) = words.next() {
        if word.starts_with(AS) && WITH_VALUE.iter().any(|it| word == it) {
            found.extend([word.clone()].into_iter().chain(words.next().cloned()));
        } else if word.starts_with(AS) && word.contains('=') {
            found.push(word.clone());
        }
    }
    found
}

/// The first word from there on that is no option, nor the value of one.
fn next(command: &[String], from: usize) -> Option<usize> {
    let mut words = command.iter().enumerate().skip(from);
    while let Some((at, word)) = words.next() {
        if !word.starts_with('-') {
            return Some(at);
        }
        if WITH_VALUE.contains(&&**word) {
            words.next();
        }
    }
    None
}

fn listed() -> String {
    let named = VERBS.iter().map(|(verb, seconds)| match seconds {
        [second] => format!("{verb} {second}"),
        _ => (*verb).to_owned(),
    });
    named.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(line: &str) -> Result<String, String> {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let steps = as_dry_run(&words).map_err(|error| error.to_string())?;
        let printed = steps.prints.map(|it| it.join(" ") + " | ").unwrap_or_default();
        Ok(printed + &steps.runs.join(" "))
    }

    #[test]
    fn it_is_run_as_a_dry_run() {
        for (line, becomes) in [
            ("kubectl delete pod a", "kubectl delete --dry-run=server pod a"),
            (
                "kubectl -n db scale sts a --replicas=0",
                "kubectl -n db scale --dry-run=server sts a --replicas=0",
            ),
            (
                "kubectl --namespace=db set image sts/a a=b",
                "kubectl --namespace=db set --dry-run=server image sts/a a=b",
            ),
            ("/usr/bin/kubectl apply -f x --dry-run=server", "/usr/bin/kubectl apply -f x --dry-run=server"),
            (
                "kubectl -v 6 run x --image=i -- --token t",
                "kubectl -v 6 run --dry-run=server x --image=i -- --token t",
            ),
            ("kubectl drain a", "kubectl drain --dry-run=server --timeout=10s a"),
            ("kubectl drain a --timeout=1s", "kubectl drain --dry-run=server a --timeout=1s"),
            ("kubectl create -f x", "kubectl create --dry-run=server -f x"),
            (
                "kubectl -n db --as anna create configmap a --from-literal=b=c --as-group=d",
                "kubectl -n db --as anna create configmap a --from-literal=b=c --as-group=d --dry-run=client --output=json | kubectl create --dry-run=server --filename=- --as anna --as-group=d",
            ),
            (
                "kubectl autoscale sts a --max=3 --dry-run=server",
                "kubectl autoscale sts a --max=3 --dry-run=client --output=json | kubectl create --dry-run=server --filename=-",
            ),
            ("kubectl rollout undo sts/a", "kubectl rollout --dry-run=server undo sts/a"),
            ("kubectl rollout -n db undo sts/a", "kubectl rollout --dry-run=server -n db undo sts/a"),
            (
                "kubectl create deployment a --image=b -o name -- sh",
                "kubectl create deployment a --image=b -o name --dry-run=client --output=json -- sh | kubectl create --dry-run=server --filename=-",
            ),
            (
                "kubectl create rolebinding a --role=b --user=c",
                "kubectl create rolebinding a --role=b --user=c --dry-run=client --output=json | kubectl create --dry-run=server --filename=-",
            ),
            ("kubectl taint node a b=c:NoExecute", "kubectl taint --dry-run=server node a b=c:NoExecute"),
        ] {
            assert_eq!(made(line).as_deref(), Ok(becomes), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_one_is_told_why() {
        for (line, words) in [
            ("helm upgrade x", "\"helm\" is not kubectl"),
            ("kubectl", "there is no kubectl command in that"),
            ("kubectl -n db", "there is no kubectl command in that"),
            ("kubectl rollout restart sts/a", "kubectl rollout restart knows no dry run of the API server"),
            (
                "kubectl edit sts/a",
                "kubectl edit knows no dry run of the API server, so it is not simulated; these do: annotate, apply",
            ),
            ("kubectl exec a -- rm", "kubectl exec knows no dry run"),
            ("kubectl create token a", "kubectl create token knows no dry run"),
            ("kubectl auth reconcile -f a", "kubectl auth knows no dry run"),
            (
                "kubectl delete pod a --context=x",
                "--context would lead elsewhere: gatera itself takes --context",
            ),
            ("kubectl --token x delete pod a", "--token would lead elsewhere"),
            ("kubectl delete pod a --user=b", "--user would lead elsewhere"),
            ("kubectl delete pod a -s http://x", "-s would lead elsewhere"),
            ("kubectl delete -shttp://x:y@z pod a", "-s would lead elsewhere"),
            ("kubectl delete pod a --dry-run=client", "--dry-run=client does not ask"),
            ("kubectl delete pod a --dry-run=none", "--dry-run=none does not ask"),
            ("kubectl delete pod a --dry-run", "--dry-run does not ask the API server"),
            ("kubectl delete pod a --dry-run server", "--dry-run does not ask the API server"),
            ("kubectl drain a --disable-eviction", "what --disable-eviction sends is not read here"),
        ] {
            let said = made(line).unwrap_err();
            assert!(said.starts_with(words), "{line}: {said}");
        }
    }
}
