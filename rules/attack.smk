"""Attacks; they read the update, the broadcast parameters and their grants, not the truth."""


rule attack_shard:
    """Attack one share of a cell's victims."""
    input:
        unpack(inputs("attack")),
    output:
        **outputs("attack_shard"),
    log:
        log_of("attack_shard"),
    benchmark:
        benchmark_of("attack_shard")
    conda:
        "../envs/gleak.yaml"
    threads: 1
    resources:
        **resources("attack_shard"),
    params:
        **keyed_on("attack_shard"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/attack.py"


if SETTINGS.shards == 1:

    use rule attack_shard as attack with:
        output:
            **outputs("attack"),
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
            unpack(inputs("gather_shards", shares)),
        output:
            **outputs("gather_shards"),
        log:
            log_of("gather_shards"),
        benchmark:
            benchmark_of("gather_shards")
        conda:
            "../envs/gleak.yaml"
        threads: 1
        resources:
            **resources("gather_shards"),
        params:
            **keyed_on("gather_shards"),
        script:
            "../workflow_scripts/gather_shards.py"
