"""Attacks; they read the update, the broadcast parameters and their grants, not the truth."""


rule attack_shard:
    """Attack one share of a cell's victims."""
    input:
        sent=f"{SENT}/update.h5",
        parameters=broadcast,
        granted=granted,
        secret=secret,
        knowledge=knowledge,
    output:
        reconstruction=f"{SHARD}/reconstruction.h5",
        provenance=f"{SHARD}/provenance.json",
    log:
        log_of("attack_shard"),
    benchmark:
        benchmark_of("attack_shard")
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("attack_shard", share_of),
    params:
        **keyed_on("attack_shard"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/attack.py"


if SETTINGS.shards == 1:

    use rule attack_shard as attack with:
        output:
            reconstruction=f"{ATTACKED}/reconstruction.h5",
            provenance=f"{ATTACKED}/provenance.json",
        log:
            log_of("attack"),
        benchmark:
            benchmark_of("attack")
        resources:
            **resources("attack"),

else:

    rule gather_shards:
        """Join the shares of a cell's victims."""
        input:
            reconstructions=shares("reconstruction"),
            provenance=shares("provenance"),
        output:
            reconstruction=f"{ATTACKED}/reconstruction.h5",
            provenance=f"{ATTACKED}/provenance.json",
        log:
            log_of("gather_shards"),
        benchmark:
            benchmark_of("gather_shards")
        conda:
            "../envs/gleak.yaml"
        resources:
            **resources("gather_shards"),
        params:
            **keyed_on("gather_shards"),
        script:
            "../workflow_scripts/gather_shards.py"
