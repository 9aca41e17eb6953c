/* libdro: distributionally robust training, for rare classes and difficult examples.
 *
 *     min_w  F(w) = lambda * log E_z exp(loss(w; z) / lambda) + r(w)
 *
 * solved online, one small batch at a time, in O(d) memory, by COVER and RECOVER (Qi, Guo, Xu, Jin,
 * Yang 2021), and by every method that the paper compares them with. Start with optimizer.h.
 *
 * Each header says what is stable and what is experimental. Stable: a program that was written for,
 * or built with, one version works with later ones of the same major version. Experimental: may
 * change with any version. Structs that a program fills begin with their size, so that they can
 * grow. */
#ifndef DRO_DRO_H
#define DRO_DRO_H

#include <dro/about.h>
#include <dro/bench.h>
#include <dro/comm.h>
#include <dro/context.h>
#include <dro/data.h>
#include <dro/export.h>
#include <dro/linear.h>
#include <dro/loader.h>
#include <dro/metrics.h>
#include <dro/net.h>
#include <dro/optimizer.h>
#include <dro/param.h>
#include <dro/problem.h>
#include <dro/report.h>
#include <dro/settings.h>
#include <dro/status.h>
#include <dro/step.h>
#include <dro/stream.h>
#include <dro/train.h>
#include <dro/version.h>

#endif
