//! A runc for machines without `CAP_SYS_RESOURCE`. The dockershim asks for an `oom_score_adj` of -998 for each sandbox,
//! which fails there, and dockerd has no switch against it as containerd has (`restrict_oom_score_adj`). This one strikes
//! it out of the container's specification, then becomes the real runc.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Puts it into the lab in `dir`, before `runc`.
pub(super) fn install(dir: &Path, runc: &Path) -> Result<PathBuf> {
    let bin = dir.join("docker-bin");
    fs::create_dir(&bin).with_context(|| format!("cannot make {}", bin.display()))?;
    let program = bin.join("runc");
    fs::write(&program, script(runc)).context("cannot write the wrapper of runc")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
        .context("cannot make the wrapper of runc executable")?;
    Ok(program)
}

/// The value of `--bundle` is the directory with the specification; only `runc create` has one.
fn script(runc: &Path) -> String {
    format!(
        r#"#!/bin/sh
before=
for word; do
    [ "$before" = --bundle ] && sed -i 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$word/config.json"
    before=$word
done
exec {} "$@"
"#,
        runc.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host;
    use std::process::Command;

    #[test]
    fn only_what_lowers_the_score_is_struck_out() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = dir.path().join("bundle");
        fs::create_dir(&bundle).unwrap();
        let specification = bundle.join("config.json");
        let runc = install(dir.path(), Path::new("/bin/echo")).unwrap();
        for (asked, given) in [("-998", "0"), ("1000", "1000")] {
            fs::write(&specification, format!("{{\"oomScoreAdj\":{asked},\"cwd\":\"/\"}}")).unwrap();
            let said = host::run(Command::new(&runc).args(["create", "--bundle"]).arg(&bundle).arg("id"));
            assert_eq!(said.unwrap(), format!("create --bundle {} id\n", bundle.display()));
            let text = fs::read_to_string(&specification).unwrap();
            assert_eq!(text, format!("{{\"oomScoreAdj\":{given},\"cwd\":\"/\"}}"));
        }
    }
}
