// Slots that do or wait for the same, told once.

import { phaseRank } from "./states.js";

/**
 * @param {any[]} slots with slot, phase and why
 * @returns {{key: string, phase: string, why: string, slots: string[]}[]} the most urgent first
 */
export function groupReasons(slots) {
  const groups = new Map();
  for (const slot of slots) {
    const why = slot.why ?? "";
    const key = `${slot.phase}\n${hideNames(why, slot.slot)}`;
    const group = groups.get(key);
    if (!group) groups.set(key, { key, phase: slot.phase, why, slots: [slot.slot] });
    else {
      group.slots.push(slot.slot);
      group.why = hideNames(why, slot.slot);
    }
  }
  return [...groups.values()].sort((one, other) => phaseRank(one.phase) - phaseRank(other.phase));
}

/** The sentence without the names of the slot and its node, which differ from slot to slot. */
function hideNames(why, slot) {
  const [before, ...parts] = why.split(slot);
  return parts.reduce((text, part) => {
    const [, node, rest] = /^(-g\d+-[a-z0-9]+)?(.*)$/s.exec(part);
    return `${text}${node ? "its node" : "it"}${rest}`;
  }, before);
}
