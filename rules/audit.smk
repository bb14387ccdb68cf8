"""Audits of defences by canaries: trials, and the bounds on epsilon that they give."""


rule audit_privacy:
    """Run clients with and without canaries, and test which."""
    input:
        dataset=reading(lambda cell: stage_files.reads_of_audit(cell)["dataset"]),
        parameters=reading(lambda cell: stage_files.reads_of_audit(cell)["parameters"]),
    output:
        audit=f"{ATTACKED}/audit.h5",
        provenance=f"{ATTACKED}/provenance.json",
    log:
        log_of("audit_privacy"),
    benchmark:
        benchmark_of("audit_privacy")
    wildcard_constraints:
        attack=named_as("audit"),
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("audit_privacy"),
    params:
        **keyed_on("audit_privacy"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/audit_privacy.py"


rule score_audit:
    """Compute the bounds on epsilon."""
    input:
        audit=f"{ATTACKED}/audit.h5",
    output:
        scores=f"{ATTACKED}/scores.csv",
    log:
        log_of("score_audit"),
    benchmark:
        benchmark_of("score_audit")
    wildcard_constraints:
        attack=named_as("audit"),
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("score_audit"),
    params:
        **scoring("audit", "client", "defense", "attack"),
    script:
        "../workflow_scripts/score_audit.py"
