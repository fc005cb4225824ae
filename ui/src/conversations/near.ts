// Tells when an element comes near the window.

const waiting = new WeakMap<Element, () => void>();
let observer: IntersectionObserver | null = null;

/** An attachment that runs an action once, when the element is less than about a screen away. */
export function near(action: () => void): (node: Element) => () => void {
  return (node) => {
    observer ??= new IntersectionObserver(
      (entries) => {
        for (const entry of entries) {
          if (!entry.isIntersecting) continue;
          observer?.unobserve(entry.target);
          waiting.get(entry.target)?.();
        }
      },
      { rootMargin: '1000px 0px' },
    );
    waiting.set(node, action);
    observer.observe(node);
    return () => observer?.unobserve(node);
  };
}
