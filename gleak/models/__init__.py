"""Model architectures: one module for each family."""

from gleak.models import custom as custom
from gleak.models import lenet as lenet
from gleak.models import perceptron as perceptron
from gleak.models import resnet as resnet
from gleak.models import vgg as vgg
