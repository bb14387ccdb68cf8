"""Membership inference: candidates, the evidence of each, and its comparison with the truth."""


rule draw_candidates:
    """Draw candidates: the samples of the victims, and others of the same distribution."""
    input:
        dataset=f"{DATASET}/dataset.h5",
        private=f"{SENT}/private.h5",
    output:
        candidates=f"{SENT}/candidates/{{number}}/granted/candidates.h5",
        members=f"{SENT}/candidates/{{number}}/members.h5",
    log:
        log_of("draw_candidates"),
    benchmark:
        benchmark_of("draw_candidates")
    wildcard_constraints:
        number="[1-9][0-9]*",
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("draw_candidates", draw_of),
    params:
        **keyed_on("draw_candidates"),
        split=lambda w: cell(w).client.split,
        of_own_classes=lambda w: cell(w).client.classes is not None,
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/draw_candidates.py"


rule infer_members:
    """Infer from the update which candidates took part."""
    input:
        sent=f"{SENT}/update.h5",
        parameters=broadcast,
        candidates=candidates,
    output:
        membership=f"{ATTACKED}/membership.h5",
        provenance=f"{ATTACKED}/provenance.json",
    log:
        log_of("infer_members"),
    benchmark:
        benchmark_of("infer_members")
    wildcard_constraints:
        attack=named_as("membership"),
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("infer_members"),
    params:
        **keyed_on("infer_members"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/infer_members.py"


rule score_members:
    """Compare the evidence with who took part."""
    input:
        members=members,
        membership=f"{ATTACKED}/membership.h5",
    output:
        scores=f"{ATTACKED}/scores.csv",
    log:
        log_of("score_members"),
    benchmark:
        benchmark_of("score_members")
    wildcard_constraints:
        attack=named_as("membership"),
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("score_members"),
    params:
        **scoring("membership"),
        grants=lambda w: " ".join(sorted(cell(w).attack.grants)),
    script:
        "../workflow_scripts/score_members.py"
