"""Architectures: one file each."""

from gleak.models import custom as custom
from gleak.models import fc2 as fc2
from gleak.models import lenet as lenet
from gleak.models import lenet5 as lenet5
from gleak.models import lenet128 as lenet128
from gleak.models import mlp as mlp
from gleak.models import resnet18 as resnet18
from gleak.models import resnet20 as resnet20
from gleak.models import resnet50 as resnet50
from gleak.models import vgg7 as vgg7
from gleak.models import vgg16 as vgg16
from gleak.models import vgg_small as vgg_small
