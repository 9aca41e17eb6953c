"""The CIFAR ResNets in PyTorch, which torchvision does not have: 6 blocks + 2 layers, shortcuts of kind A, and the names
of the parameters that libdro has."""
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, before, channels):
        super().__init__()
        self.stride = 1 if before == channels else 2
        self.pad = (channels - before) // 2
        self.conv1 = nn.Conv2d(before, channels, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.stride > 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
        return F.relu(y + x)


def stage(blocks, before, channels):
    return nn.Sequential(*(Block(channels if k else before, channels) for k in range(blocks)))


class CifarResNet(nn.Module):
    def __init__(self, blocks, channels, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = stage(blocks, 16, 16)
        self.layer2 = stage(blocks, 16, 32)
        self.layer3 = stage(blocks, 32, 64)
        self.linear = nn.Linear(64, outputs)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))
