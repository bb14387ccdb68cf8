"""Attacks see the update, the broadcast parameters and what their spec is granted; no truth.

A server that crafted the parameters knows its own secret, too, and so does the attack made for it.
What an attacker brings was trained on public data.
"""

SHARD = f"{ATTACKED}/shards/{{shard}}-of-{{shards}}"


def granted(wildcards):
    """The grants an attack's spec asks for, and no others."""
    return grants_of(cell(wildcards))


def grants_of(levels):
    """The files of the grants that a cell's attack asks for."""
    folder = PATHS.folder(levels.upto("defense"))
    return [f"{folder}/granted/{grant}.h5" for grant in sorted(levels.attack.grants)]


def secret(wildcards):
    """What the server kept to itself, for the attack that its crafting was made for."""
    return secret_of(cell(wildcards))


def secret_of(levels):
    """The secret that a cell's attack asks for; no file for most."""
    folder = PATHS.folder(levels.upto("crafting"))
    return [f"{folder}/secret.h5"] if levels.attack.crafting else []


def brought(wildcards):
    """What an attack's spec brings, trained on public data."""
    return brought_by(cell(wildcards))


def brought_by(levels):
    """The files of the knowledge that a cell's attack brings; none for most."""
    return [PATHS.knowledge(pretraining) for pretraining in levels.pretrainings]


def shards_of(wildcards):
    """The shares of a cell's victims, none of them empty."""
    count = min(SETTINGS.shards, cell(wildcards).client.victims)
    folder = PATHS.folder(cell(wildcards))
    return [
        f"{folder}/shards/{shard}-of-{count}/reconstruction.h5" for shard in range(1, count + 1)
    ]


rule attack_shard:
    """Attack one share of a cell's victims."""
    input:
        sent=f"{ARTIFACTS}/{SENT}/update.h5",
        parameters=parameters,
        granted=granted,
        secret=secret,
        knowledge=brought,
    output:
        reconstruction=f"{ARTIFACTS}/{SHARD}/reconstruction.h5",
        provenance=f"{ARTIFACTS}/{SHARD}/provenance.json",
    log:
        f"{LOGS}/{SHARD}/attack.log",
    benchmark:
        f"{BENCHMARKS}/{SHARD}/attack.tsv"
    threads: 1
    resources:
        mem_mb=memory(6000, copies=3),
        runtime=240,
        gpu=int(SETTINGS.device == "cuda"),
    params:
        specs=resolved("model", "attack"),
        source=source("gleak.attacks.run", "model", "attack"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/attack.py"


if SETTINGS.shards == 1:

    use rule attack_shard as attack with:
        output:
            reconstruction=f"{ARTIFACTS}/{ATTACKED}/reconstruction.h5",
            provenance=f"{ARTIFACTS}/{ATTACKED}/provenance.json",
        log:
            f"{LOGS}/{ATTACKED}/attack.log",
        benchmark:
            f"{BENCHMARKS}/{ATTACKED}/attack.tsv"

else:

    rule gather_shards:
        """Join the shares of a cell's victims."""
        input:
            reconstructions=shards_of,
        output:
            reconstruction=f"{ARTIFACTS}/{ATTACKED}/reconstruction.h5",
            provenance=f"{ARTIFACTS}/{ATTACKED}/provenance.json",
        log:
            f"{LOGS}/{ATTACKED}/gather_shards.log",
        benchmark:
            f"{BENCHMARKS}/{ATTACKED}/gather_shards.tsv"
        threads: 1
        resources:
            mem_mb=4000,
            runtime=30,
        params:
            source=source("gleak.attacks.gather"),
        script:
            "../workflow_scripts/gather_shards.py"
