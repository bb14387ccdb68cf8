"""Importing this module before torchvision or lpips makes their import possible.

`gleak.runtime.torchvision_ops` says why. This is done on import, so that a process that imports the
modules of earlier jobs in their order (`gleak.runtime.forkserver`) does it in time, too.
"""

from gleak.runtime.torchvision_ops import ensure_operators

ensure_operators()
