//! A server whose memory limit is smaller than its buffer pool.

use super::RULE;
use crate::verdict::Finding;
use facts::galera::options;
use facts::view::View;
use objects::Workload;

const POOL: &str = "innodb_buffer_pool_size";

/// Returns a warning if the memory limit is below the buffer pool.
pub(super) fn judge(ns: &str, workload: &Workload, view: &View<'_>) -> Option<Finding> {
    let template = &workload.spec.template;
    let server = super::server_of(workload, view)?;
    let limit = server.resources.limits.get("memory")?;
    let flags = options::flags(server);
    let by_flag = flags.iter().rfind(|flag| flag.key == POOL).and_then(|flag| flag.value.as_ref());
    let files = view.files(ns, &template.spec);
    let by_file = || {
        let files = files.iter().filter(|file| options::is_file(file.key, file.text));
        files.filter_map(|file| options::effective(file.text, POOL)).next_back()
    };
    let pool = by_flag.cloned().or_else(by_file)?;
    (options::number(pool.look())? > u128::from(limit.bytes()?)).then(|| {
        RULE.warn(format!("spec.template.spec.containers[{}].resources.limits.memory", server.name),
            format!(
                "container {} has a memory limit of {limit}, but {POOL} is {}",
                server.name,
                super::values::shortened(pool.look())
            ),
            "the pool fills while the database is used; then the kernel kills the server, on all members with the same load",
            "write a smaller pool, or a memory limit at least a quarter larger than the pool",
        )
    })
}
